"""Workers outlive the cancellation of all tasks, and keep nothing from ending."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from replica.io.process.worker import Worker


class Counting:
    """A worker that takes numbers from a queue, and fails at a negative one."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[int] = asyncio.Queue()
        self.seen: list[int] = []
        self.worker = Worker(self._run, lambda: not self.queue.empty(), "counting")

    async def _run(self) -> None:
        while True:
            number = await self.queue.get()
            if number < 0:
                raise ValueError(number)
            self.seen.append(number)

    def add(self, number: int) -> None:
        self.queue.put_nowait(number)
        self.worker.go_on()


@asynccontextmanager
async def counting() -> AsyncIterator[Counting]:
    """Start a worker, and let it wait for its first number."""
    made = Counting()
    await turns()
    yield made
    await made.worker.stop()
    assert made.worker.has_ended


def others() -> set[asyncio.Task[object]]:
    """Return all other tasks."""
    return asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]  # it is one


def cancel_all() -> None:
    """Do what asyncio.run does at its end."""
    for task in others():
        task.cancel()


async def turns() -> None:
    """Let the event loop run whatever is ready."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_work_that_comes_with_the_cancellation_is_done() -> None:
    async with counting() as here:
        cancel_all()
        here.add(1)  # before the task has ended
        await turns()
        assert here.seen == [1]


async def test_work_that_comes_behind_it_is_done() -> None:
    async with counting() as here:
        cancel_all()
        await turns()
        assert not others()
        here.add(1)
        await turns()
        assert here.seen == [1]


async def test_who_waits_for_the_end_waits_behind_a_cancellation() -> None:
    async with counting() as here:
        ended = here.worker.ended()
        cancel_all()
        waiting = asyncio.create_task(ended)
        await turns()
        here.add(-1)
        with pytest.raises(ValueError, match="-1"):
            await waiting
        assert here.worker.has_ended
        here.add(1)  # an error is its end
        await turns()
        assert not here.seen


async def test_a_worker_that_was_stopped_begins_no_more() -> None:
    async with counting() as here:
        here.queue.put_nowait(1)
        await here.worker.stop()
        here.add(2)
        await turns()
        assert not here.seen and not others()
