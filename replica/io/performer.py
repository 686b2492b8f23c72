"""Performs effects in order: persist, then the rest (spec/04-link §7).

One queue, one task, over replica/commits.py: group commit and "an ack means
durable" are the same loop, at a hub and at a replica alike.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from replica.commits import Commits, Conversations, Work
from replica.conversation import EntryStore
from replica.errors import StoreError
from replica.ids import ConversationId
from replica.log import Entry

log = structlog.get_logger()

Perform = Callable[[Conversations], None]
"""Does what may be seen once the entries are durable, but for what concerns these
conversations: the disk refused something of them. Usually there are none."""

OnFailure = Callable[[StoreError, Conversations], None]
"""Undoes what memory believes of these conversations; nothing of it was shown."""


@dataclass(frozen=True, slots=True)
class _Task:
    perform: Perform
    done: "asyncio.Future[None]"

    def finish(self, error: StoreError | None) -> None:
        if self.done.done():
            return
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)


class Performer:
    """The single writer between a pure core and the world."""

    def __init__(self, store: EntryStore, on_failure: OnFailure) -> None:
        """Write to `store`; `on_failure` is told what it would not take."""
        self._store = store
        self._on_failure = on_failure
        self._commits: Commits[_Task] = Commits()
        self._performing: tuple[Work[_Task], ...] = ()
        self._awake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._task: asyncio.Task[None] | None = None

    @property
    def writing(self) -> Conversations:
        """The conversations with entries that are not durable yet."""
        return self._commits.writing

    def start(self) -> None:
        """Start performing."""
        self._task = asyncio.create_task(self._run(), name="performer")

    async def stop(self) -> None:
        """Finish what is queued, then stop."""
        if self._task is None:
            return
        drained = asyncio.create_task(self._idle.wait())
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
        self._commits.submit(Work(persist, about, _Task(perform, done)))
        self._idle.clear()
        self._awake.set()
        return done

    async def flush(self, conversation: ConversationId | None = None) -> None:
        """Wait until what is queued so far is durable and performed.

        Raises StoreError where the disk refused something of it; with a
        conversation, something of that.
        """
        about = None if conversation is None else {conversation}
        await self.submit((), lambda _lost: None, about)

    async def _run(self) -> None:
        try:
            while True:
                await self._awake.wait()
                self._awake.clear()
                await self._commit()
        finally:
            # Our own bug, or the end of the loop: nobody may wait for ever.
            for work in (*self._performing, *self._commits.abandon()):
                work.payload.finish(StoreError("the performer has ended; see the log for why"))

    async def _commit(self) -> None:
        entries = self._commits.begin()
        try:
            if entries:
                await self._store.append(entries)
        except StoreError as error:
            self._refuse(error)
        else:
            self._perform(self._commits.complete(), frozenset(), None)
        if not self._commits:
            self._idle.set()

    def _refuse(self, error: StoreError) -> None:
        refused = self._commits.refuse()
        log.error("the store refused a batch", reason=error.reason, works=len(refused.work))
        self._on_failure(error, refused.lost)
        self._perform(refused.work, refused.lost, error)

    def _perform(
        self, done: tuple[Work[_Task], ...], lost: Conversations, error: StoreError | None
    ) -> None:
        self._performing = done
        for work in done:
            work.payload.perform(lost)
            work.payload.finish(error if work.fails_with(lost) else None)
        self._performing = ()
