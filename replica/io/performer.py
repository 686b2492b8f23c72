"""Performs effects in order: persist, then the rest (spec/04-link §2).

One queue, one task. It takes whatever waits, makes all of it durable in one
transaction, and only then lets anything of it show: group commit and "an ack
means durable" are the same loop, at a hub and at a replica alike.
"""

import asyncio
from collections.abc import Callable, Set
from dataclasses import dataclass

import structlog

from replica.errors import StoreError
from replica.ids import ConversationId
from replica.io.store import Store
from replica.log import Entry

log = structlog.get_logger()


Conversations = Set[ConversationId]

Perform = Callable[[Conversations], None]
"""Does what may be seen once the entries are durable, but for what concerns these
conversations: the disk refused something of them. Usually there are none."""

OnFailure = Callable[[StoreError, Conversations], None]
"""Undoes what memory believes of these conversations; nothing of it was shown."""


@dataclass(frozen=True, slots=True)
class Work:
    """Entries to persist, and what to do once they are durable."""

    persist: tuple[Entry, ...]
    perform: Perform
    about: Conversations | None
    """Whose failure is this work's failure too; None: any one's."""
    done: "asyncio.Future[None]"

    def is_about(self, lost: Conversations) -> bool:
        """Say whether one of these conversations bears on this work."""
        return bool(lost) if self.about is None else not lost.isdisjoint(self.about)


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
        drained = asyncio.create_task(self._queue.join())
        await asyncio.wait((self._task, drained), return_when=asyncio.FIRST_COMPLETED)
        for task in (self._task, drained):
            task.cancel()
        await asyncio.gather(self._task, drained, return_exceptions=True)

    async def failed(self) -> None:
        """Raise what ended the performer; without it nothing would ever be acked."""
        assert self._task is not None, "start() comes first"
        await asyncio.shield(self._task)

    def submit(
        self,
        persist: tuple[Entry, ...],
        perform: Perform,
        about: Conversations | None = None,
    ) -> "asyncio.Future[None]":
        """Queue work; the future ends once it is performed, or with the store's error.

        What is said of a conversation `about` may rest on entries that are
        queued before it, so a commit that loses those fails this work as well.
        Raises StoreError once the performer has died.
        """
        if self._task is not None and self._task.done():
            raise StoreError("nothing is performed any more; see the log for what ended it")
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Most callers do not wait; an error nobody waits for was still handled in on_failure.
        done.add_done_callback(lambda future: future.cancelled() or future.exception())
        self._queue.put_nowait(Work(persist, perform, about, done))
        return done

    async def flush(self, conversation: ConversationId | None = None) -> None:
        """Wait until what is queued so far is durable and performed.

        Raises StoreError where the disk refused something of it; with a
        conversation, something of that.
        """
        about = None if conversation is None else {conversation}
        await self.submit((), lambda _lost: None, about)

    async def _run(self) -> None:
        batch: list[Work] = []
        try:
            while True:
                batch = [await self._queue.get()]
                await self._take(batch)
        finally:
            # Our own bug, or the end of the loop: nobody may wait for ever.
            for work in (*batch, *self._waiting()):
                _finish(work, StoreError("the performer has ended; see the log for why"))

    async def _take(self, batch: list[Work]) -> None:
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
            self._perform(batch, frozenset(), None)
        for _ in batch:
            self._queue.task_done()

    def _waiting(self) -> list[Work]:
        works = []
        while not self._queue.empty():
            works.append(self._queue.get_nowait())
        return works

    def _fail(self, batch: list[Work], error: StoreError) -> None:
        lost = {entry.conversation for work in batch for entry in work.persist}
        log.error("the store refused a batch", reason=error.reason, works=len(batch))
        self._on_failure(error, lost)
        self._perform(batch, lost, error)

    def _perform(self, batch: list[Work], lost: Conversations, error: StoreError | None) -> None:
        for work in batch:
            work.perform(lost)
            _finish(work, error if work.persist or work.is_about(lost) else None)


def _finish(work: Work, error: StoreError | None) -> None:
    if work.done.done():
        return
    if error is None:
        work.done.set_result(None)
    else:
        work.done.set_exception(error)
