"""One thread renders for all, and nobody's work keeps the others waiting."""

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from model_host.io.contexts.rendering import Rendering
from replica.io.calls.host_calls import HostCalls
from replica.refusals import RateLimited
from tests.model_host.io.two_profiles import TwoProfiles, two_profiles
from tests.support.talk import key_of

pytestmark = pytest.mark.usefixtures("own_cache")


async def test_work_is_done_in_turn_and_answers_before_calls():
    rendering, free, done = Rendering(), threading.Event(), list[str]()
    first = asyncio.create_task(rendering.run(free.wait, b"x"))
    tasks = [
        asyncio.create_task(rendering.run(lambda w=work: done.append(w), payer, for_answer=answer))
        for work, payer, answer in (
            ("call", b"a", False),
            ("one", b"a", True),
            ("two", b"a", True),
            ("other", b"b", True),
        )
    ]
    while rendering.waiting < 4:  # noqa: ASYNC110  # no event says so
        await asyncio.sleep(0)
    free.set()
    await asyncio.gather(first, *tasks)
    await rendering.close()
    assert done == ["one", "other", "two", "call"]


async def test_a_failure_is_its_callers_and_the_rest_goes_on():
    rendering = Rendering()
    with pytest.raises(ZeroDivisionError):
        await rendering.run(lambda: 1 // 0, b"a")
    assert await rendering.run(lambda: 2, b"a") == 2
    await rendering.close()


async def test_work_whose_caller_has_gone_is_not_done():
    rendering, free, done = Rendering(), threading.Event(), list[int]()
    first = asyncio.create_task(rendering.run(free.wait, b"a"))
    gone = asyncio.create_task(rendering.run(lambda: done.append(1), b"a"))
    while not rendering.waiting:  # noqa: ASYNC110  # no event says so
        await asyncio.sleep(0)
    first.cancel()  # in progress: the next work waits for its end all the same
    gone.cancel()
    last = asyncio.create_task(rendering.run(lambda: done.append(2), b"a"))
    free.set()
    await last
    await rendering.close()
    assert done == [2]


async def test_calls_that_read_leave_the_loop_to_others_for_as_long_as_they_took():
    now, done = 0.0, list[str]()
    rendering = Rendering(lambda: now)

    def read(name: str, takes_s: float, until: float) -> Callable[[], Callable[[], None]]:
        def take() -> Callable[[], None]:
            nonlocal now
            assert now >= until
            now += takes_s
            return lambda: done.append(name)

        return take

    await rendering.read(read("one", 3.0, 0.0), b"a")
    waiting = [
        asyncio.create_task(rendering.read(read(w, 0.0, 6.0), b"b")) for w in ("two", "last")
    ]
    for _ in range(3):  # the call is passed over, and what answers wait for is not
        await rendering.run(lambda: done.append("answer"), b"a", for_answer=True)
    assert done == ["one", *3 * ["answer"]]
    now = 6.0
    await rendering.run(lambda: None, b"a", for_answer=True)
    await asyncio.gather(*waiting)
    await rendering.close()
    assert done[4:] == ["two", "last"]


async def test_a_call_that_rests_needs_nobody_to_go_on():
    passed_s = 0.0
    rendering = Rendering(lambda: time.monotonic() + passed_s)

    def fail() -> Callable[[], int]:
        nonlocal passed_s
        passed_s = 0.02
        raise ZeroDivisionError

    began = time.monotonic()
    with pytest.raises(ZeroDivisionError):
        await rendering.read(fail, b"a")
    assert await rendering.read(lambda: lambda: 2, b"a") == 2
    assert time.monotonic() - began >= 0.02
    await rendering.close()


async def until_waiting(two: TwoProfiles, count: int) -> None:
    async with asyncio.timeout(10):
        while two.host.handler.rendering.waiting < count:  # noqa: ASYNC110  # no event says so
            await asyncio.sleep(0)


async def test_a_key_counts_once_at_a_time(tmp_path: Path):
    async with two_profiles(tmp_path) as two:
        said = (await two.talk.say("hello")).id
        host = two.host.replica
        await host.wait_for(lambda: two.talk.id in host.shelf, 30)
        await host.wait_for(lambda: said in host.shelf[two.talk.id].log.entries, 30)
        free = threading.Event()
        rendering = two.host.handler.rendering
        held_up = asyncio.create_task(rendering.run(free.wait, b"another"))
        async with HostCalls(two.host.address, key_of(1), two.host.key) as calls:
            counting = asyncio.create_task(calls.count_tokens(two.talk.id, text="hello"))
            await until_waiting(two, 1)
            with pytest.raises(RateLimited):
                await calls.count_tokens(two.talk.id, text="hello")
            request = await two.talk.request(tokens=1)
            await until_waiting(two, 2)
            free.set()
            await asyncio.gather(held_up, counting)
            await two.talk.answer(request)
            assert (await calls.count_tokens(two.talk.id, text="hello")).tokens
