"""Drives the hub core: store, clock, and the order of effects (spec/04-link §7)."""

import asyncio
import time
from collections.abc import Callable

import structlog

from replica.aio.performer import Conversations, Performer
from replica.aio.store import Store
from replica.effects import Entries, Fault, Message, conversation_of
from replica.errors import StoreError
from replica.ids import ID_BYTES, ConversationId, EntryId, PublicKey
from replica.refusals import ConversationDeleted
from syncd.hub import Hub, HubEffects, LinkId

log = structlog.get_logger()

TICK_S = 1.0
"""How often deadlines are looked at; all of them are tens of seconds long."""

_TOMBSTONES = "deleted conversations"

Sink = Callable[[Message | None], None]
"""Takes a link's messages in order; None ends the link. Never blocks."""


class HubDriver:
    """The hub core with its store and its clock."""

    def __init__(self, hub: Hub, store: Store) -> None:
        """Own neither: the server opens and closes both."""
        self.hub = hub
        self.store = store
        self.performer = Performer(store, self._undo)
        self._sinks: dict[LinkId, Sink] = {}
        self._ticker: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Load what is stored and start performing."""
        for stored in await self.store.conversations():
            self.hub.load(stored.conversation, await self.store.load(stored.conversation))
        tombstones = await self.store.get_meta(_TOMBSTONES) or b""
        for at in range(0, len(tombstones), ID_BYTES):
            self.hub.deleted.add(ConversationId(tombstones[at : at + ID_BYTES]))
        self.performer.start()
        self._ticker = asyncio.create_task(self._tick(), name="hub deadlines")

    async def stop(self) -> None:
        """Finish what is queued, then stop."""
        if self._ticker is not None:
            self._ticker.cancel()
            await asyncio.gather(self._ticker, return_exceptions=True)
        await self.performer.stop()

    async def failed(self) -> None:
        """Raise what ended one of the tasks a hub can't live without."""
        assert self._ticker is not None, "start() comes first"
        await asyncio.gather(self.performer.failed(), asyncio.shield(self._ticker))

    # --- links --------------------------------------------------------------

    def connect(self, peer: PublicKey, sink: Sink) -> LinkId:
        """Take a new link; its messages go to `sink`."""
        link_id = self.hub.connect(peer, time.monotonic())
        self._sinks[link_id] = sink
        return link_id

    def disconnect(self, link_id: LinkId) -> None:
        """Forget a link."""
        self._sinks.pop(link_id, None)
        self.hub.disconnect(link_id)

    async def receive(self, link_id: LinkId, message: Message, frame_bytes: int) -> None:
        """Hand a link's message to the core and queue what follows."""
        conversation = getattr(message, "conversation", None)
        if conversation is not None:
            await self.ensure_loaded(conversation)
        effects = self.hub.receive(link_id, message, time.monotonic(), frame_bytes)
        self._submit(effects)

    async def push(self, peer: PublicKey, message: Entries) -> dict[EntryId, Fault | None]:
        """Append without a link; returns once everything admitted is durable."""
        await self.ensure_loaded(message.conversation)
        effects, outcomes = self.hub.push(peer, message, time.monotonic())
        await self._submit(effects, message.conversation)
        return outcomes

    async def ensure_loaded(self, conversation: ConversationId) -> None:
        """Put a stored conversation back on the shelf after a failed write took it off."""
        if conversation in self.hub.shelf or not await self.store.has(conversation):
            return
        entries = await self.store.load(conversation)
        if conversation not in self.hub.shelf:
            self.hub.load(conversation, entries)

    async def delete(self, conversation: ConversationId) -> int:
        """Delete a conversation for good, tell its links, take it no more; return its size."""
        entries = len(self.hub.shelf[conversation].log)
        self.hub.deleted.add(conversation)
        fault = Fault.of(ConversationDeleted(), conversation)
        effects = self.hub.forget(conversation, fault)
        await self.performer.flush()
        # The tombstone first: after a crash in between, nobody can bring the log back.
        await self.store.put_meta(_TOMBSTONES, b"".join(sorted(self.hub.deleted)))
        await self.store.delete(conversation)
        self._submit(effects)
        return entries

    # --- effects --------------------------------------------------------------

    def _submit(
        self, effects: HubEffects, conversation: ConversationId | None = None
    ) -> "asyncio.Future[None]":
        named = (conversation, *(conversation_of(message) for _, message in effects.send))
        about = {one for one in named if one is not None}
        return self.performer.submit(effects.persist, lambda lost: self._send(effects, lost), about)

    def _send(self, effects: HubEffects, lost: Conversations = frozenset()) -> None:
        for link_id, message in effects.send:
            sink = self._sinks.get(link_id)
            if sink is not None and conversation_of(message) not in lost:
                sink(message)
        for link_id in effects.closed:
            sink = self._sinks.get(link_id)
            if sink is not None:
                sink(None)

    def _undo(self, error: StoreError, lost: Conversations) -> None:
        """Forget what memory believes but the disk refused; nobody was told of it.

        The links are told that the conversation left them for now; the writers
        still hold their entries and send them again.
        """
        for conversation in lost:
            self._send(self.hub.forget(conversation, Fault.of(error, conversation)))

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._submit(self.hub.handle_deadlines(time.monotonic()))
