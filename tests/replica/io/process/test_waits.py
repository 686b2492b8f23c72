"""Waits of bounded length share one timer, and each ends at its own time."""

import asyncio

import pytest

from replica.io.process.waits import Waits

LONG_S = 60.0


async def wait(waits: Waits, length_s: float, event: asyncio.Event) -> bool:
    """Wait for an event; say whether the wait was over before."""
    try:
        async with asyncio.timeout(None) as limit:
            waits.begin(limit, length_s)
            try:
                await event.wait()
            finally:
                waits.leave(limit)
    except TimeoutError:
        return True
    return False


async def test_waits_that_are_over_at_once_all_end() -> None:
    waits, never = Waits(), asyncio.Event()
    found = await asyncio.gather(*(wait(waits, 0.01, never) for _ in range(3)))
    assert found == [True, True, True]
    assert not waits._ends


async def test_a_wait_behind_one_that_is_over_has_its_own_time() -> None:
    waits, never, event = Waits(), asyncio.Event(), asyncio.Event()
    first = asyncio.create_task(wait(waits, 0.01, never))
    second = asyncio.create_task(wait(waits, LONG_S, event))
    assert await first
    assert waits._timer is not None
    assert waits._timer.when() > asyncio.get_running_loop().time() + LONG_S / 2
    event.set()
    assert not await second


async def test_many_waits_have_one_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, timers = asyncio.get_running_loop(), list[float]()
    call_at = loop.call_at

    def note(when: float, *args: object) -> asyncio.TimerHandle:
        timers.append(when)
        return call_at(when, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "call_at", note)
    waits, event = Waits(), asyncio.Event()
    event.set()
    for _ in range(100):
        assert not await wait(waits, LONG_S, event)
    assert len(timers) == 1
