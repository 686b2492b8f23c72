"""Loads a hub's stored conversations, at the start and on demand."""

import asyncio
from collections import Counter
from collections.abc import Callable

import structlog

from replica.commits import Conversations
from replica.conversation import EntryStore, Loaded
from replica.errors import StoreError
from replica.ids import ConversationId, PublicKey, short
from replica.link import Message
from replica.log import Lost
from syncd.fan_out import HubEffects
from syncd.hub import Hub

log = structlog.get_logger()


class Loader:
    """Reads conversations for a hub core, each of them at most once at a time."""

    def __init__(
        self, hub: Hub, store: EntryStore, perform: Callable[[HubEffects], object]
    ) -> None:
        """Use the hub and its store; `perform` receives the effects of a load."""
        self._hub = hub
        self._store = store
        self._perform = perform
        self._loads: dict[ConversationId, asyncio.Task[None]] = {}
        self._asked: Counter[ConversationId] = Counter()

    async def load_all(self) -> None:
        """Load stored conversations up to the bound, and index the others."""
        deleted = set(self._hub.deleted)
        for stored in await self._store.conversations():
            if stored.conversation not in deleted:
                await self._begin(stored.conversation)

    async def _begin(self, conversation: ConversationId) -> None:
        in_memory = self._hub.shelf.has_capacity
        try:
            loaded = await self._store.load(conversation, bodies=in_memory)
        except StoreError:
            # The others are served anyway; this one is read again on demand.
            log.exception("conversation unreadable", conversation=short(conversation))
            loaded = Loaded([], Lost(is_unreadable=True))
        if in_memory:
            self._put(conversation, loaded)
        elif loaded:
            self._hub.index(conversation, loaded.entries, loaded.lost)

    async def ensure_loaded(
        self, peer: PublicKey, conversation: ConversationId, message: Message | None = None
    ) -> None:
        """Load a conversation if an answer to `peer` needs it; see Hub.needs_load.

        It stays in memory until the caller's next await. Raises StoreError.
        """
        self._asked[conversation] += 1
        try:
            # Repeated if the disk refused a commit before this caller continued.
            while self._hub.needs_load(peer, conversation, message):
                task = self._loads.get(conversation)
                if task is None:
                    task = asyncio.create_task(self._load(conversation), name="conversation load")
                    self._loads[conversation] = task
                await asyncio.shield(task)
        finally:
            self._asked[conversation] -= 1
            if not self._asked[conversation]:
                del self._asked[conversation]

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
            self._put(conversation, await self._store.load(conversation))
        finally:
            del self._loads[conversation]

    def _put(self, conversation: ConversationId, loaded: Loaded) -> None:
        self._perform(self._hub.load(conversation, loaded.entries, loaded.lost))
        held = self._hub.shelf.get(conversation)
        if held is not None and held.is_blocked:
            log.error(
                "conversation blocked until a member sends the missing entries",
                conversation=short(conversation),
                missing=[short(i) for i in sorted(held.damage.missing)],
            )
