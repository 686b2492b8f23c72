"""Calls to a thread: in order, under its turn, with results on the event loop."""

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from model_host.io.threads.call_queue import CallQueue
from model_host.io.threads.fair_lock import FairLock
from replica.errors import HostError


class Served:
    """A thread that performs calls; `is_busy` while it has other work."""

    def __init__(self) -> None:
        self.turn = FairLock()
        self.calls = CallQueue(self.turn)
        self.is_busy = False
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self.calls.open()
        self._thread.start()

    def _run(self) -> None:
        while not self._is_stopping:
            self.calls.perform_all(wait=self.is_busy or not self.calls.has_idle_calls)
            if self.calls.has_idle_calls and not self.is_busy:
                self.calls.perform_idle()

    async def stop(self) -> None:
        self._is_stopping = True
        self.calls.wake()
        await asyncio.to_thread(self._thread.join)


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    made = Served()
    made.start()
    yield made
    await made.stop()


async def test_calls_are_performed_in_order_in_the_thread(served: Served) -> None:
    order: list[int] = []
    await asyncio.gather(*(served.calls.call(lambda n=n: order.append(n)) for n in range(20)))
    assert order == list(range(20))
    performed_by = await served.calls.call(threading.current_thread)
    assert performed_by is not threading.current_thread()


async def test_what_a_call_raises_is_raised_at_its_caller(served: Served) -> None:
    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await served.calls.call(fail)
    assert await served.calls.call(lambda: 7) == 7


async def test_a_call_waits_for_the_turn(served: Served) -> None:
    with served.turn:
        call = asyncio.create_task(served.calls.call(lambda: 7))
        while not served.turn.waiting:  # noqa: ASYNC110  # no event says so
            await asyncio.sleep(0)
        assert not call.done()
    assert await call == 7


async def test_an_idle_call_waits_until_there_is_nothing_else_to_do(served: Served) -> None:
    served.is_busy = True
    idle = asyncio.create_task(served.calls.call(lambda: "idle", when_idle=True))
    while not served.calls.has_idle_calls:  # noqa: ASYNC110  # no event says so
        await asyncio.sleep(0)
    assert await served.calls.call(lambda: "soon") == "soon"
    assert not idle.done()

    def rest() -> None:
        served.is_busy = False

    await served.calls.call(rest)
    assert await idle == "idle"


async def test_an_idle_call_whose_caller_left_is_not_performed(served: Served) -> None:
    served.is_busy, performed = True, list[int]()
    idle = asyncio.create_task(served.calls.call(lambda: performed.append(1), when_idle=True))
    while not served.calls.has_idle_calls:  # noqa: ASYNC110  # no event says so
        await asyncio.sleep(0)
    idle.cancel()
    await asyncio.gather(idle, return_exceptions=True)
    served.is_busy = False
    await served.calls.call(lambda: None, when_idle=True)
    assert performed == []


async def test_what_waits_fails_at_the_end_and_nothing_is_accepted_any_more() -> None:
    calls = CallQueue(FairLock())
    with pytest.raises(HostError):
        await calls.call(lambda: 7)  # not open yet
    calls.open()
    waiting = asyncio.create_task(calls.call(lambda: 7))
    await asyncio.sleep(0)
    calls.end()
    with pytest.raises(HostError):
        await waiting
    with pytest.raises(HostError):
        await calls.call(lambda: 7)


def test_a_wait_for_one_call_ends_in_time() -> None:
    calls, performed = CallQueue(FairLock()), list[int]()
    calls.perform_one(0.001)
    calls.post(lambda: performed.append(1))
    calls.post(lambda: performed.append(2))
    calls.perform_one(0.001)
    assert performed == [1]
