"""The driver of a replica's core: store, clock, and the order of effects (spec/04-link §7).

The counterpart of syncd/io/driver.py. replica/io/driver/hub_link.py runs the stream to the hub.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from replica.commits import Conversations
from replica.conversation import Conversation, EntryStore, is_absent
from replica.core import Leaves, ReplicaCore, ReplicaEffects
from replica.errors import ReplicaClosed, StoreError
from replica.ids import ConversationId, EntryId
from replica.io.driver.link_outbox import LinkOutbox
from replica.io.driver.long_logs import restored
from replica.io.driver.performer import Performer
from replica.io.driver.saved_acks import SavedAcks
from replica.io.driver.saved_endings import SavedEndings
from replica.io.local import WriteUnconfirmed
from replica.io.process import Alarm, get_logger, look_at
from replica.link import EntriesAdmitted, Event, Fault, conversation_of
from replica.log import Entry
from replica.refusals import ConversationUnknown

log = get_logger()

R = TypeVar("R")


class ReplicaDriver:
    """A replica's core with its store and its clock."""

    def __init__(
        self,
        core: ReplicaCore,
        store: EntryStore,
        acks: SavedAcks,
        deliver: Callable[[Event], None],
    ) -> None:
        """Call `deliver` with every event, after its entries are durable."""
        self.core = core
        self.acks = acks
        self.endings = SavedEndings(store, acks)
        self.outbox = LinkOutbox()
        """Frames for the current stream; each stream has an outbox of its own."""
        self._store = store
        self._deliver = deliver
        self._performer = Performer(store, self._undo)
        self._loads: dict[ConversationId, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._alarm = Alarm(lambda: self.do(self.core.handle_deadline(time.monotonic())))

    def start(self) -> None:
        """Start performing effects."""
        self._performer.start()

    async def stop(self) -> None:
        """Cancel background tasks, finish the queued effects, then stop."""
        self._alarm.set(None)
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.endings.close()
        await self._performer.stop()

    async def failed(self) -> None:
        """Raise the error that ended the performer; wait for ever if it runs."""
        await self._performer.failed()

    async def flush(self) -> None:
        """Wait until the effects queued so far are durable and performed. Raises StoreError."""
        await self._performer.flush()

    def spawn(self, work: Coroutine[Any, Any, R]) -> "asyncio.Task[R]":
        """Run a coroutine as a task, which is cancelled when the driver stops."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # --- effects ------------------------------------------------------------------------

    def do(self, effects: ReplicaEffects) -> "asyncio.Future[None]":
        """Perform effects of the core; the future ends once they are durable and delivered."""
        self._alarm.set(effects.wake_at)
        for conversation, positions in effects.acked:
            self.acks.save(conversation, positions)
        for conversation in effects.load:
            self._begin_load(conversation)
        outbox = self.outbox

        def perform(lost: Conversations) -> None:
            for frame in effects.send:
                if conversation_of(frame) not in lost:
                    outbox.put(frame)
            for event in effects.deliver:
                if conversation_of(event) not in lost:
                    self._deliver(event)
            for conversation in effects.closed:
                self.evict(conversation)

        return self._performer.submit(effects.persist, perform, effects.about)

    def append(
        self, entry: Entry, *, more_follow: bool, send: bool = True
    ) -> "asyncio.Future[None]":
        """Admit an entry of the replica's key; the future ends once it is durable."""
        now = time.monotonic()
        return self.do(self.core.append(entry, now, more_follow=more_follow, send=send))

    def offer(self, conversation: ConversationId, ids: Iterable[EntryId]) -> None:
        """Send entries of the replica's key in memory that another process made durable."""
        held = self.core.shelf.get(conversation)
        if held is not None:
            new = tuple(held.log.entries[entry] for entry in ids)
            self.do(replace(self.core.keep(held, new, time.monotonic()), persist=()))

    async def admit(
        self, conversation: ConversationId, entries: tuple[Entry, ...], *, persist: bool
    ) -> "asyncio.Future[None] | None":
        """Admit entries that another process verified, and sends, if the conversation is here.

        Returns None if it is neither in memory nor on its way; else a future that ends once
        they are admitted, and with `persist` durable.
        """
        if self.core.shelf.get(conversation) is None and conversation in self._loads:
            with suppress(StoreError):  # whoever began the load gets it
                await self.loading(conversation)
        held = self.core.shelf.get(conversation)
        if held is None:
            return None
        new = held.admit_known(entries)
        effects = self.core.keep(held, new, time.monotonic(), send=False)
        shown = (EntriesAdmitted(conversation, new), *effects.deliver) if new else effects.deliver
        return self.do(replace(effects, persist=entries if persist else (), deliver=shown))

    def _undo(self, error: StoreError, lost: Conversations) -> None:
        """Pass a refused commit to the core, and deliver at once: all queued work will fail."""
        fault = Fault.of(error)
        if isinstance(error, WriteUnconfirmed):
            fault = replace(fault, retryable=True)  # entries may be stored and sent twice
        effects = self.core.disk_refused(lost, fault, time.monotonic())
        self._alarm.set(effects.wake_at)
        for frame in effects.send:
            self.outbox.put(frame)
        for event in effects.deliver:
            self._deliver(event)
        for conversation in effects.closed:
            self.evict(conversation)

    def unfollow(self, conversation: ConversationId) -> None:
        """Stop syncing a conversation; one of which nothing is held leaves memory."""
        self.do(self.core.unfollow(conversation))
        held = self.core.shelf.get(conversation)
        if held is None or is_absent(held):
            self._drop(conversation)

    async def forget(self, conversation: ConversationId) -> None:
        """Drop a deleted conversation from memory, once a load of it has ended."""
        with suppress(StoreError):  # whoever began the load gets it
            await self.loading(conversation)
        self._drop(conversation)

    def _drop(self, conversation: ConversationId) -> None:
        self.acks.forget(conversation)
        self.endings.forget(conversation)
        self.do(self.core.forget(conversation))

    def evict(self, conversation: ConversationId) -> None:
        """Drop a closed conversation from memory, once its entries are durable."""
        match self.core.listed.leaves(conversation, self._performer.writing):
            case Leaves.NOW:
                self._drop(conversation)
            case Leaves.LATER:
                # What was written since is part of a later commit.
                self._performer.submit((), lambda _lost: self.evict(conversation), {conversation})

    # --- loading --------------------------------------------------------------------------

    async def load(self, conversation: ConversationId) -> Conversation:
        """Return a conversation held here; concurrent calls share one load.

        Raises ConversationUnknown, StoreError.
        """
        if self.core.shelf.get(conversation) is None or conversation not in self.core.holdings.acks:
            await finished(self._begin_load(conversation))
        held = self.core.shelf.get(conversation)
        if held is None:
            raise ConversationUnknown(f"{conversation.hex()[:12]} is not held here")
        return held

    async def loading(self, conversation: ConversationId) -> None:
        """Wait for a load that is in progress, if there is one. Raises StoreError."""
        task = self._loads.get(conversation)
        if task is not None:
            await finished(task)

    def _begin_load(self, conversation: ConversationId) -> "asyncio.Task[None]":
        task = self._loads.get(conversation)
        if task is None:
            task = self._loads[conversation] = self.spawn(self._load(conversation))
            task.add_done_callback(look_at)  # the core tries again
        return task

    async def _load(self, conversation: ConversationId) -> None:
        try:
            loaded = await self._store.load(conversation)
            held = await restored(conversation, loaded) if loaded else None
            await self.endings.load(conversation)
            # Read last: another hub may be linked meanwhile, whose acks count then.
            acked = await self.acks.load(conversation)
        except ReplicaClosed:
            raise
        except StoreError as error:
            log.warning("could not read it", reason=error.reason, detail=error.detail)
            self.do(self.core.unreadable(conversation, Fault.of(error), time.monotonic()))
            raise
        else:
            self.do(self.core.loaded(conversation, held, acked, time.monotonic()))
        finally:
            del self._loads[conversation]  # until now, entries of other processes wait for it

    async def keep(self, held: Conversation, new: tuple[Entry, ...]) -> None:
        """Put a conversation on the shelf and make entries admitted to it durable."""
        if held.id not in self.core.holdings.acks:
            await finished(self._begin_load(held.id))
        await self.do(self.core.keep(held, new, time.monotonic()))


async def finished(task: "asyncio.Task[R]") -> R:
    """Return the result of a driver's task, which goes on where the caller is cancelled.

    Raises its error, and ReplicaClosed where the driver cancels it, at its end.
    """
    task.add_done_callback(look_at)
    await asyncio.wait({task})
    if task.cancelled():
        raise ReplicaClosed
    return task.result()
