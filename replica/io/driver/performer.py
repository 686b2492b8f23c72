"""The performer of effects, in order: persist, then the rest (spec/04-link §7).

One queue and one task over replica/commits.py, at a hub and at a replica. Its
loop commits in groups and shows nothing before it is durable (DECISIONS D75). Work that writes
nothing, and has none before it, is performed at once.
A refused commit fails only the work that depends on it (DECISIONS D76).
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from replica.commits import Commits, Conversations, Work
from replica.conversation import EntryStore
from replica.errors import ReplicaClosed, StoreError
from replica.ids import ConversationId
from replica.io.process import Repeated, Worker, get_logger
from replica.log import Entry

log = get_logger()

Perform = Callable[[Conversations], None]
"""Sends and delivers once the entries are durable, except for these conversations, of
which the disk refused entries. Usually there are none."""

OnFailure = Callable[[StoreError, Conversations], None]
"""Undoes in memory the refused changes of these conversations, which nobody has seen."""


GATHER_QUIET_TURNS = 8
"""Turns of the event loop without new work after which a commit begins."""
GATHER_S = 0.005
"""Longest time before a commit begins, however much work comes."""


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
            self.done.exception()  # seen: on_failure handled it, and most callers do not await


class Performer:
    """The only task that commits and performs the effects of a pure core."""

    def __init__(self, store: EntryStore, on_failure: OnFailure) -> None:
        """Write to `store`; `on_failure` is called with each refused commit."""
        self._lines = Repeated()
        self._store = store
        self._on_failure = on_failure
        self._commits: Commits[_Task] = Commits()
        self._performing: tuple[Work[_Task], ...] = ()
        self._bug: Exception | None = None
        """The error of work that was performed at once; the task ends with it."""
        self._submitted = 0
        self._begun = 0
        self._is_busy = False
        """The last commit had several works with entries."""
        self._awake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._worker: Worker | None = None
        self._is_stopped = False

    @property
    def writing(self) -> Conversations:
        """The conversations with entries that are not durable yet."""
        return self._commits.writing

    def start(self) -> None:
        """Start performing effects."""
        self._worker = Worker(self._run, lambda: bool(self._commits), "performer")

    async def stop(self) -> None:
        """Finish the queued work, then stop."""
        if self._worker is None:
            return
        drained = asyncio.create_task(self._idle.wait())
        ended = asyncio.create_task(self._worker.ended())
        await asyncio.wait((ended, drained), return_when=asyncio.FIRST_COMPLETED)
        for task in (ended, drained):
            task.cancel()
        await asyncio.gather(ended, drained, return_exceptions=True)
        self._is_stopped = True
        await self._worker.stop()

    async def failed(self) -> None:
        """Raise the error that ended the performer; wait for ever if it runs."""
        assert self._worker is not None, "start() comes first"
        await self._worker.ended()

    def submit(
        self,
        persist: tuple[Entry, ...],
        perform: Perform,
        about: Conversations | None = None,
    ) -> "asyncio.Future[None]":
        """Perform work once what it persists, and all before it, is durable.

        The future ends once it is performed, or with the store's error. Work `about` a
        conversation may depend on entries queued before it, so a commit that loses those
        fails this work as well. Raises ReplicaClosed behind `stop`, and StoreError if a bug
        has ended the performer.
        """
        if self._is_stopped:
            raise ReplicaClosed
        if self._worker is not None and self._worker.has_ended:
            raise StoreError("the performer has ended; see the log for the reason")
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        work = Work(persist, about, _Task(perform, done))
        if self._worker is not None and not (persist or self._commits or self._performing):
            self._perform_at_once(work)
            return done
        self._commits.submit(work)
        self._submitted += bool(persist)
        self._idle.clear()
        self._awake.set()
        if self._worker is not None:
            self._worker.go_on()
        return done

    def _perform_at_once(self, work: Work[_Task]) -> None:
        """Perform work without a turn of the event loop."""
        try:
            self._perform((work,), frozenset(), None)
        except Exception as error:  # noqa: BLE001  # the task raises it
            assert self._worker is not None, "work before start() is queued"
            self._bug = error
            self._awake.set()
            self._worker.go_on()

    def _raise_bug(self) -> None:
        if self._bug is not None:
            raise self._bug

    async def flush(self, conversation: ConversationId | None = None) -> None:
        """Wait until the work queued so far is durable and performed.

        Raises StoreError if the disk refused entries of it; with a
        conversation, entries of that conversation.
        """
        about = None if conversation is None else {conversation}
        await self.submit((), lambda _lost: None, about)

    async def written(self, conversation: ConversationId) -> None:
        """Wait until no entry of a conversation is being written, and for no other's entries.

        Raises StoreError if the disk refused some.
        """
        if conversation in self.writing:
            await self.flush(conversation)

    async def _run(self) -> None:
        self._commits.put_back()  # of a commit that was cut off: what is stored stays as it is
        if self._commits:
            self._awake.set()
        try:
            while True:
                await self._awake.wait()
                self._awake.clear()
                self._raise_bug()
                if self._is_busy and self._commits.has_entries:
                    await self._gather()
                await self._commit()
        except asyncio.CancelledError:
            raise
        except BaseException:
            # A bug here: no caller may wait for ever.
            for work in (*self._performing, *self._commits.abandon()):
                work.payload.finish(
                    StoreError("the performer has ended; see the log for the reason")
                )
            raise

    async def _gather(self) -> None:
        """Let the event loop bring more work into the commit, as long as it brings any.

        A commit costs the loop as much as an entry or two. While the loop is busy with other
        calls, their entries come within its next turns. Only a commit behind one that several
        works shared waits: an append alone is not delayed (DECISIONS D396). Work without
        entries is not waited for either: a peer that asks much delays no other's append.
        """
        seen, quiet = self._submitted, 0
        loop = asyncio.get_running_loop()
        until = loop.time() + GATHER_S
        while quiet < GATHER_QUIET_TURNS and loop.time() < until:
            await asyncio.sleep(0)
            quiet = quiet + 1 if seen == self._submitted else 0
            seen = self._submitted

    async def _commit(self) -> None:
        began, entries = self._begun, self._commits.begin()
        self._begun = self._submitted
        if entries:
            self._is_busy = self._begun - began > 1
        try:
            if entries:
                await self._store.append(entries, at_once=True)  # it has gathered already
        except StoreError as error:
            self._refuse(error)
        else:
            self._perform(self._commits.complete(), frozenset(), None)
        if not self._commits:
            self._idle.set()

    def _refuse(self, error: StoreError) -> None:
        refused = self._commits.refuse()
        if times := self._lines.due(error.reason):
            log.error(
                "the store refused a batch",
                reason=error.reason,
                count=len(refused.work),
                times=times,
            )
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
