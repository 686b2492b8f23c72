"""Loads a hub's stored conversations, at the start and on demand."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

import structlog

from replica.commits import Conversations
from replica.conversation import Conversation, EntryStore, Loaded, Stored
from replica.errors import EntryRefused, StoreError
from replica.ids import ConversationId, PublicKey, short
from replica.io import restored
from replica.link import (
    STEP_ENTRIES,
    STEP_HEADS,
    Entries,
    Ids,
    Link,
    Message,
    Open,
    Steps,
    conversation_of,
    is_walking,
    prepared,
)
from replica.log import MEMBERSHIP_TRACKS, Lost, verify_signature
from replica.refusals import StoreCorrupt
from syncd.bounds import disk_bytes
from syncd.hub import Hub
from syncd.io.folds import Folds
from syncd.io.pacer import Pacer
from syncd.io.record_keeper import RecordKeeper
from syncd.links import HubEffects, parts
from syncd.shelves import Known, records

log = structlog.get_logger()


async def _verify(message: Entries, peer: PublicKey, pacer: Pacer) -> None:
    """Verify the signatures of membership entries that are judged together, in steps."""
    shown = [e for e in message.entries if e.header.track in MEMBERSHIP_TRACKS]
    for index, entry in enumerate(shown, 1):
        with suppress(EntryRefused):  # refused again, with its reason
            verify_signature(entry)
        if index % STEP_ENTRIES == 0:
            await pacer.step(peer)


class Loader:
    """Reads conversations for a hub core, each of them at most once at a time."""

    def __init__(
        self,
        hub: Hub,
        store: EntryStore,
        perform: Callable[[HubEffects], object],
        pacer: Pacer,
        folds: Folds,
        keeper: RecordKeeper,
        written: Callable[[ConversationId], Awaitable[None]],
    ) -> None:
        """Use the hub and its store; `perform` receives the effects of a load.

        `written` waits for the entries of a conversation that are being written.
        """
        self._keeper = keeper
        self._written = written
        self._pacer = pacer
        self._folds = folds
        self._hub = hub
        self._store = store
        self._perform = perform
        self._loads: dict[ConversationId, asyncio.Task[None]] = {}
        self._asked: Counter[ConversationId] = Counter()

    async def load_all(self) -> None:
        """Load stored conversations up to the bound, and index the others.

        Raises StoreCorrupt where there are several, and none can be read: the hub could serve
        nobody, and its operator is told.
        """
        deleted, left = set(self._hub.deleted), records.READ_ENTRIES_MAX
        refusals, can_serve = list[StoreCorrupt](), False
        all_stored = await self._store.conversations()
        known = await self._keeper.load(all_stored)
        for stored in all_stored:
            if stored.conversation in deleted:
                continue
            size = disk_bytes(stored.entries, stored.size_bytes)
            if stored in known and stored.entries > left:
                record = known[stored]
                self._hub.index(stored.conversation, record, record.creator, size)
                can_serve = True
                continue
            left -= stored.entries
            try:
                await self._begin(stored, size)
                can_serve = True
            except StoreCorrupt as error:
                refusals.append(error)
        if len(refusals) > 1 and not can_serve:
            raise refusals[0]

    async def _begin(self, stored: Stored, size_bytes: int) -> None:
        """Load or index a conversation, as unreadable if it is. Raises StoreCorrupt then."""
        conversation, in_memory, refusal = stored.conversation, self._hub.shelf.has_capacity, None
        try:
            loaded = await self._store.load(conversation, bodies=in_memory)
        except StoreError as error:
            # The others are served anyway; this one is read again on demand.
            log.exception("conversation unreadable", conversation=short(conversation))
            loaded = Loaded([], Lost(is_unreadable=True))
            refusal = error
        if in_memory:
            self._put(await restored(conversation, loaded))
        elif loaded:
            held = Conversation.restore(conversation, loaded.entries, loaded.lost)
            self._hub.index(conversation, Known.of(held, stored), held.creator, size_bytes)
        if isinstance(refusal, StoreCorrupt):
            raise refusal

    async def ensure_loaded(
        self, peer: PublicKey, conversation: ConversationId, message: Message | None = None
    ) -> None:
        """Load a conversation if an answer to `peer` needs it, or wait for its fold that pauses.

        See Hub.needs_load. It stays in memory until the caller's next await. Raises StoreError.
        """
        if not self._hub.needs_load(peer, conversation, message):
            return
        with self.kept(conversation):
            # Repeated if the disk refused a commit before this caller continued.
            while self._hub.needs_load(peer, conversation, message):
                if conversation in self._hub.shelf.folding.held:
                    await self._folds.ended(conversation)
                    continue
                task = self._loads.get(conversation)
                if task is None:
                    task = asyncio.create_task(self._load(conversation), name="conversation load")
                    self._loads[conversation] = task
                await asyncio.shield(task)

    @contextmanager
    def kept(self, conversation: ConversationId) -> Iterator[None]:
        """Keep a conversation in memory, once it is there, until the caller's next await."""
        self._asked[conversation] += 1
        try:
            yield
        finally:
            self._asked[conversation] -= 1
            if not self._asked[conversation]:
                del self._asked[conversation]

    async def prepare(self, link: Link, peer: PublicKey, message: Message) -> None:
        """Compare heads or ids, and find what is to be sent, in steps before a long one (LINK-92).

        Raises StoreError.
        """
        is_long = is_walking(link)
        if isinstance(message, Open) or (isinstance(message, Ids) and not message.more):
            await self.ensure_loaded(peer, message.conversation, message)
            held = self._hub.shelf.get(message.conversation)
            size = len(held.log) if held is not None else 0
            is_long |= size > STEP_HEADS or len(getattr(message, "heads", None) or ()) > STEP_HEADS
        if is_long:
            await self._prepare(prepared(link, message), peer, message)

    async def _prepare(self, steps: Steps[None], peer: PublicKey, message: Message) -> None:
        conversation = conversation_of(message)
        while True:
            await self._pacer.step(peer)
            if conversation is not None:  # a fold of it may have begun
                await self.ensure_loaded(peer, conversation, message)
            try:
                next(steps)
            except StopIteration:
                return

    async def in_parts(
        self,
        peer: PublicKey,
        conversation: ConversationId,
        message: Message,
        receive: Callable[[Message], None],
    ) -> None:
        """Let `receive` take a message in parts, each with its conversation loaded.

        Others run between them. Raises StoreError.
        """
        await self.ensure_loaded(peer, conversation, message)
        if isinstance(message, Entries) and message.brings_genesis:
            await _verify(message, peer, self._pacer)
            await self.ensure_loaded(peer, conversation, message)
        first = True
        for part in parts(message, partial(self._hub.shelf.get, conversation), peer):
            if not first:
                await self._pacer.step(peer)
                await self.ensure_loaded(peer, conversation, message)
            first = False
            await self._folds.run(peer, partial(receive, part))
            if conversation not in self._hub.shelf:  # what is left looks at it
                await self.ensure_loaded(peer, conversation, message)

    @property
    def asked(self) -> Conversations:
        """Conversations that callers wait for; evicted now, they would be loaded again."""
        return self._asked.keys()

    async def stop(self) -> None:
        """Cancel the loads in progress."""
        loads = tuple(self._loads.values())
        for task in loads:
            task.cancel()
        await asyncio.gather(*loads, return_exceptions=True)

    async def _load(self, conversation: ConversationId) -> None:
        try:
            with suppress(StoreError):  # entries that it refuses are not stored
                await self._written(conversation)
            loaded = await self._store.load(conversation)
            self._put(await restored(conversation, loaded))
        finally:
            del self._loads[conversation]

    def _put(self, held: Conversation) -> None:
        self._keeper.note_loaded(held)
        self._perform(self._hub.hold(held))
        if held.is_blocked:
            log.error(
                "conversation blocked until a member sends the missing entries",
                conversation=short(held.id),
                count=len(held.damage.missing),
            )
