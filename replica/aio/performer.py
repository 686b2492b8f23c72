"""Performs effects in order: persist, then the rest (spec/04-link §2).

One queue, one task. It takes whatever waits, makes all of it durable in one
transaction, and only then lets anything of it show: group commit and "an ack
means durable" are the same loop, at a hub and at a replica alike.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from replica.aio.store import Store
from replica.entry import Entry
from replica.errors import StoreError
from replica.ids import ConversationId


@dataclass(frozen=True, slots=True)
class Work:
    """Entries to persist, and what to do once they are durable."""

    persist: tuple[Entry, ...]
    perform: Callable[[], None]
    done: "asyncio.Future[None]"


OnFailure = Callable[[StoreError, set[ConversationId], list[Work]], None]
"""Undoes what memory believes of these conversations; the works were not performed."""


class Performer:
    """The single writer between a pure core and the world."""

    def __init__(self, store: Store, on_failure: OnFailure) -> None:
        """Write to `store`; `on_failure` is told what it would not take."""
        self._store = store
        self._on_failure = on_failure
        self._queue: asyncio.Queue[Work] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start performing."""
        self._task = asyncio.create_task(self._run(), name="performer")

    async def stop(self) -> None:
        """Finish what is queued, then stop."""
        if self._task is None:
            return
        if not self._task.done():
            await self._queue.join()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def failed(self) -> None:
        """Raise what ended the performer; without it nothing would ever be acked."""
        assert self._task is not None, "start() comes first"
        await asyncio.shield(self._task)

    def submit(
        self, persist: tuple[Entry, ...], perform: Callable[[], None]
    ) -> "asyncio.Future[None]":
        """Queue work; the future ends once it is performed, or with the store's error."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Most callers do not wait; an error nobody waits for was still handled in on_failure.
        done.add_done_callback(lambda future: future.cancelled() or future.exception())
        self._queue.put_nowait(Work(persist, perform, done))
        return done

    async def flush(self) -> None:
        """Wait until everything queued so far is durable and performed."""
        await self.submit((), lambda: None)

    async def _run(self) -> None:
        while True:
            batch = [await self._queue.get()]
            batch += self._waiting()
            entries = [entry for work in batch for entry in work.persist]
            try:
                if entries:
                    await self._store.append(entries)
            except StoreError as error:
                # What was queued meanwhile builds on what the disk refused.
                batch += self._waiting()
                self._fail(batch, error)
            else:
                for work in batch:
                    work.perform()
                    _finish(work, None)
            for _ in batch:
                self._queue.task_done()

    def _waiting(self) -> list[Work]:
        works = []
        while not self._queue.empty():
            works.append(self._queue.get_nowait())
        return works

    def _fail(self, batch: list[Work], error: StoreError) -> None:
        lost = {entry.conversation for work in batch for entry in work.persist}
        self._on_failure(error, lost, batch)
        for work in batch:
            _finish(work, error if work.persist else None)


def _finish(work: Work, error: StoreError | None) -> None:
    if work.done.done():
        return
    if error is None:
        work.done.set_result(None)
    else:
        work.done.set_exception(error)
