"""Steps of a busy hub, with turns of the event loop between them, on a clock of the test."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from replica.ids import PublicKey
from syncd.bounds.shares import Payer
from syncd.io import pacer as module
from syncd.io.pacer import IDLE_S, PAUSE_TURNS, SHORT_STEPS_MAX, SLICE_S, Pacer

HEAVY, LIGHT = PublicKey(b"h" * 32), PublicKey(b"l" * 32)


def new_pacer() -> Pacer:
    return Pacer(lambda key: Payer(b"pool", key))


class Clock:
    """A clock that moves only with the work of steps."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module, "time", made)
    return made


async def turns_until(done: Callable[[], bool]) -> int:
    """Turn the loop until something holds; return how often."""
    turns = 0
    while not done():
        await asyncio.sleep(0)
        turns += 1
    return turns


def working(pacer: Pacer, clock: Clock, key: PublicKey, taken_s: float, done: list[PublicKey]):
    """Work without end, each step of the same length."""

    async def work() -> None:
        while True:
            await pacer.step(key)
            clock.now += taken_s
            done.append(key)

    return asyncio.create_task(work())


async def test_a_step_waits_for_nothing_while_the_slice_lasts(clock: Clock) -> None:
    pacer = new_pacer()
    for _ in range(3):
        step = pacer.step(HEAVY)
        with pytest.raises(StopIteration):
            step.send(None)  # it returned without a turn of the loop
        clock.now += SLICE_S / 4


async def test_a_pause_follows_each_slice(clock: Clock) -> None:
    pacer, done = new_pacer(), list[PublicKey]()
    task = working(pacer, clock, HEAVY, SLICE_S / 2, done)
    await turns_until(lambda: bool(done))
    assert len(done) == 2  # a slice of two steps, without a turn between them
    assert await turns_until(lambda: len(done) > 2) >= PAUSE_TURNS
    assert len(done) <= 4
    task.cancel()


async def test_a_step_of_another_key_goes_before_the_second_of_a_heavy_one(clock: Clock) -> None:
    pacer, done = new_pacer(), list[PublicKey]()
    tasks = [working(pacer, clock, HEAVY, SLICE_S, done) for _ in range(8)]
    await turns_until(lambda: len(done) > 3)
    before = len(done)
    await pacer.step(LIGHT)
    assert len(done) <= before + 1
    for task in tasks:
        task.cancel()


async def test_a_heavy_key_makes_a_longer_pause_beside_others(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    pacer, done, pauses = new_pacer(), list[PublicKey](), list[float]()
    call_later = asyncio.get_running_loop().call_later

    def note(delay: float, *args: object) -> asyncio.TimerHandle:
        pauses.append(delay)
        return call_later(0.0, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", note)
    task = working(pacer, clock, HEAVY, SLICE_S, done)
    await turns_until(lambda: len(done) > 3)
    assert pauses == []  # it is alone
    await pacer.step(LIGHT)
    before = len(done)
    await turns_until(lambda: len(done) > before + 3)
    assert set(pauses) == {module.LONG_PAUSE_S}
    clock.now += module.OTHERS_S
    pauses.clear()
    before = len(done)
    await turns_until(lambda: len(done) > before + 3)
    assert pauses == []
    task.cancel()


@pytest.mark.parametrize(("streams", "pauses"), [(0, 1), (3, 4), (1_000, 1 + module.PAUSES_MAX)])
async def test_a_pause_lasts_while_streams_of_the_busy_key_come(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, streams: int, pauses: int
) -> None:
    """Else their work delays the calls of others, which gRPC accepts behind them."""
    pacer, done, found, left = new_pacer(), list[PublicKey](), list[int](), streams
    loop = asyncio.get_running_loop()
    call_later = loop.call_later

    def come(delay: float, *args: object) -> asyncio.TimerHandle:
        nonlocal left
        found.append(len(done))
        if left:
            left -= 1
            loop.call_soon(pacer.note_stream, HEAVY)
        return call_later(0.001, *args)  # type: ignore[arg-type]

    task = working(pacer, clock, HEAVY, SLICE_S, done)
    await turns_until(lambda: bool(done))
    await pacer.step(LIGHT)
    monkeypatch.setattr(loop, "call_later", come)
    await turns_until(lambda: bool(found))
    before = found[0]
    await turns_until(lambda: len(done) > before)
    assert found.count(before) == pauses
    task.cancel()


async def test_streams_of_others_prolong_no_pause(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    pacer, done = new_pacer(), list[PublicKey]()
    task = working(pacer, clock, HEAVY, SLICE_S, done)
    await turns_until(lambda: bool(done))
    pacer.note_stream(HEAVY)  # it is alone
    assert not pacer._has_stream_come
    await pacer.step(LIGHT)
    await turns_until(lambda: pacer._is_long)
    pacer.note_stream(LIGHT)
    assert not pacer._has_stream_come
    task.cancel()


async def test_an_idle_hub_begins_a_new_slice(clock: Clock) -> None:
    pacer = new_pacer()
    await pacer.step(HEAVY)
    clock.now += SLICE_S * 0.9
    await asyncio.sleep(0)  # its turn ends
    await asyncio.sleep(0)
    clock.now += 2 * IDLE_S
    await pacer.step(HEAVY)
    clock.now += SLICE_S * 0.9
    step = pacer.step(HEAVY)
    with pytest.raises(StopIteration):
        step.send(None)


async def test_calls_that_are_cancelled_while_they_wait_hold_nobody_up(clock: Clock) -> None:
    pacer, done = new_pacer(), list[PublicKey]()
    await pacer.step(HEAVY)
    clock.now += 2 * SLICE_S
    gone = [asyncio.create_task(pacer.step(HEAVY)) for _ in range(3)]
    last = working(pacer, clock, HEAVY, SLICE_S, done)
    await asyncio.sleep(0)
    for task in gone:
        task.cancel()
    await asyncio.wait_for(turns_until(lambda: bool(done)), 5)
    last.cancel()


async def test_work_in_steps_has_its_result_and_its_error(clock: Clock) -> None:
    pacer = new_pacer()

    def counted(fails: bool) -> Iterator[None]:
        for _ in range(3):
            clock.now += SLICE_S
            yield
        if fails:
            raise ValueError("at the end")
        return 7  # type: ignore[return-value]  # the result of the steps

    assert await pacer.in_steps(counted(fails=False), HEAVY) == 7  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at the end"):
        await pacer.in_steps(counted(fails=True), HEAVY)  # type: ignore[arg-type]


async def test_a_long_step_is_followed_by_as_many_pauses(clock: Clock) -> None:
    pacer, done = new_pacer(), list[PublicKey]()
    task = working(pacer, clock, HEAVY, 4.5 * SLICE_S, done)
    await turns_until(lambda: bool(done))
    assert len(done) == 1
    assert 4 * PAUSE_TURNS <= await turns_until(lambda: len(done) > 1) <= 4 * PAUSE_TURNS + 4
    task.cancel()


async def test_in_a_pause_those_step_that_had_no_part_of_the_slice(clock: Clock) -> None:
    pacer, done = new_pacer(), list[PublicKey]()
    heavy = working(pacer, clock, HEAVY, SLICE_S, done)
    await turns_until(lambda: bool(done))
    for key, returns in ((LIGHT, True), (HEAVY, False)):
        step = pacer.step(key)
        if returns:
            with pytest.raises(StopIteration):
                step.send(None)
            clock.now += SLICE_S / 2
        else:
            step.send(None)
            step.close()
    light = working(pacer, clock, LIGHT, SLICE_S / 2, done)
    await asyncio.sleep(0)
    assert done.count(LIGHT) == 1  # then the time of such steps is over
    assert pacer._pauses
    for task in (heavy, light):
        task.cancel()


async def test_each_step_is_charged_to_its_own_payer(clock: Clock) -> None:
    pacer, charged = new_pacer(), Counter[PublicKey]()
    note = pacer._queue.note

    def noted(payer: Payer, seconds: float) -> None:
        charged[payer.key] += seconds  # type: ignore[assignment]
        note(payer, seconds)

    pacer._queue.note = noted  # type: ignore[method-assign]
    done = list[PublicKey]()
    heavy = working(pacer, clock, HEAVY, 2 * SLICE_S, done)

    async def work_lightly() -> None:
        while True:
            await pacer.step(LIGHT)
            clock.now += SLICE_S / 100
            done.append(LIGHT)
            await asyncio.sleep(0)  # it is ready again before the heavy one that was granted

    light = asyncio.create_task(work_lightly())
    await turns_until(lambda: done.count(HEAVY) > 20)
    for task in (heavy, light):
        task.cancel()
    assert charged[HEAVY] == pytest.approx(done.count(HEAVY) * 2 * SLICE_S, rel=0.1)
    assert charged[LIGHT] == pytest.approx(done.count(LIGHT) * SLICE_S / 100, rel=0.1)


async def test_short_steps_wait_for_nobody_while_a_turn_has_few(clock: Clock) -> None:
    pacer = new_pacer()
    await pacer.step(HEAVY)
    clock.now += 2 * SLICE_S
    waits = asyncio.create_task(pacer.step(HEAVY))  # a pause begins
    await asyncio.sleep(0)
    for _ in range(SHORT_STEPS_MAX):
        step = pacer.short_step(HEAVY)
        with pytest.raises(StopIteration):
            step.send(None)
    one_more = pacer.short_step(HEAVY)
    assert one_more.send(None) is not None  # it waits
    one_more.close()
    await asyncio.sleep(0)
    step = pacer.short_step(HEAVY)
    with pytest.raises(StopIteration):
        step.send(None)
    await waits
