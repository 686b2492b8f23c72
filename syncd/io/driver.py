"""Drives the hub core: store, clock, and the order of effects (spec/04-link §7).

Tombstones of deleted conversations are stored before their entries are erased
(DECISIONS D42), so that an interrupted deletion is completed at the next start.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog

from replica.commits import Conversations
from replica.conversation import Conversation, EntryStore
from replica.errors import StoreError
from replica.ids import ID_BYTES, ConversationId, EntryId, PublicKey, short
from replica.io import Blobs, Performer
from replica.link import Entries, Fault, Frame, Message, conversation_of
from syncd.connected import LinkId
from syncd.fan_out import HubEffects
from syncd.hint import Hint
from syncd.hub import Hub
from syncd.io.loader import Loader
from syncd.queries import Right
from syncd.streams import Streams

log = structlog.get_logger()

TICK_S = 1.0
"""Interval between checks of deadlines, which are tens of seconds long."""

BACKLOG_BYTES_MAX = 1024 * 1024
"""Bytes of one link that may be received and not yet durable; then reading stops."""

_TOMBSTONES = "deleted conversations"

Sink = Callable[[Frame | Hint | None], None]
"""Receives a link's frames in order; None ends the link. Never blocks."""


class HubDriver:
    """The hub core with its store and its clock."""

    def __init__(self, hub: Hub, store: EntryStore, blobs: Blobs) -> None:
        """Use the caller's hub, store and blobs; the server opens and closes them."""
        self.hub = hub
        self.store = store
        self.blobs = blobs
        self.streams = Streams(hub.policy.links_per_key_max)
        self.performer = Performer(store, self._undo)
        self._sinks: dict[LinkId, Sink] = {}
        self._backlog_bytes: dict[LinkId, int] = {}
        self._loader = Loader(hub, store, self._submit)
        self._ticker: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Finish interrupted deletions, load the stored conversations, start the tasks."""
        tombstones = await self.store.get_meta(_TOMBSTONES) or b""
        for at in range(0, len(tombstones), ID_BYTES):
            self.hub.delete(ConversationId(tombstones[at : at + ID_BYTES]))
        for conversation in self.hub.deleted:
            try:
                await self._erase(conversation)
            except StoreError:
                # It stays deleted for all peers, and the next start tries again.
                log.exception("deletion not finished", conversation=short(conversation))
        await self._loader.load_all()
        self.performer.start()
        self._ticker = asyncio.create_task(self._tick(), name="hub deadlines")

    async def stop(self) -> None:
        """Perform the queued effects, then stop."""
        if self._ticker is not None:
            self._ticker.cancel()
            await asyncio.gather(self._ticker, return_exceptions=True)
        await self._loader.stop()
        await self.performer.stop()

    async def failed(self) -> None:
        """Raise the error that ended one of the hub's permanent tasks."""
        assert self._ticker is not None, "start() comes first"
        await asyncio.gather(self.performer.failed(), asyncio.shield(self._ticker))

    # --- links --------------------------------------------------------------

    def connect(self, peer: PublicKey, sink: Sink, *, watches: bool = False) -> LinkId:
        """Add a link; its frames and, for a watcher, hints go to `sink`."""
        link_id = self.hub.connect(peer, time.monotonic(), watches=watches)
        self._sinks[link_id] = sink
        self._backlog_bytes[link_id] = 0
        return link_id

    def disconnect(self, link_id: LinkId) -> None:
        """Remove a link; do nothing when repeated."""
        self._sinks.pop(link_id, None)
        self._backlog_bytes.pop(link_id, None)
        self.hub.disconnect(link_id)

    async def receive(self, link_id: LinkId, message: Message, frame_bytes: int) -> None:
        """Pass a link's message to the core and queue its effects.

        Returns late if the disk is slower than the link. Not reading the next
        frame is the only flow control that a peer can't ignore.
        """
        conversation, link = conversation_of(message), self.hub.links.get(link_id)
        if conversation is not None and link is not None and link.peer is not None:
            await self._loader.ensure_loaded(link.peer, conversation, message)
        done = self._submit(self.hub.receive(link_id, message, time.monotonic(), frame_bytes))
        if not frame_bytes or link_id not in self._backlog_bytes:
            return
        self._backlog_bytes[link_id] += frame_bytes
        done.add_done_callback(lambda _done: self._release_backlog(link_id, frame_bytes))
        if self._backlog_bytes[link_id] > BACKLOG_BYTES_MAX:
            await asyncio.wait((done,))

    def _release_backlog(self, link_id: LinkId, size: int) -> None:
        if link_id in self._backlog_bytes:
            self._backlog_bytes[link_id] -= size

    async def push(self, peer: PublicKey, message: Entries) -> dict[EntryId, Fault | None]:
        """Append without a link; return once all admitted entries are durable."""
        await self._loader.ensure_loaded(peer, message.conversation, message)
        effects, outcomes = self.hub.push(peer, message, time.monotonic())
        await self._submit(effects, message.conversation)
        return outcomes

    # --- queries --------------------------------------------------------------

    async def permitted(
        self, peer: PublicKey, conversation: ConversationId, right: Right = Right.READ
    ) -> Conversation:
        """Return a conversation, loaded if necessary; see Hub.permitted."""
        await self._loader.ensure_loaded(peer, conversation)
        return self.hub.permitted(peer, conversation, right)

    async def flush(self, conversation: ConversationId) -> None:
        """Return once all admitted entries of the conversation are durable. Raises StoreError."""
        await self.performer.flush(conversation)

    # --- streams --------------------------------------------------------------

    @contextmanager
    def hold(self, peer: PublicKey, connection: str, expire: Callable[[], None]) -> Iterator[None]:
        """Count a Link or Watch stream until its call ends; see Streams. Raises QuotaExceeded."""
        stream = self.streams.begin(peer, connection, time.monotonic(), expire)
        try:
            yield
        finally:
            self.streams.end(stream)

    def renew(self, peer: PublicKey, connection: str) -> None:
        """Extend the streams of a key that was proved again on this connection."""
        self.streams.renew(peer, connection, time.monotonic())

    # --- deletion -------------------------------------------------------------

    async def delete(self, peer: PublicKey, conversation: ConversationId) -> int:
        """Delete a conversation for good and close it on its links; return its entry count.

        Raises the errors of Hub.permitted, and StoreError; then nothing is deleted.
        """
        entries = len((await self.permitted(peer, conversation, Right.DELETE)).log)
        effects = self.hub.delete(conversation)
        try:
            await self.performer.flush(conversation)
            # The tombstone first: after a crash in between, no peer can restore the log,
            # and the next start finishes the deletion.
            await self.store.put_meta(_TOMBSTONES, b"".join(self.hub.deleted))
        except StoreError as error:
            self._submit(self.hub.undelete(conversation, effects, Fault.of(error, conversation)))
            raise
        self._submit(effects)
        await self._erase(conversation)
        return entries

    async def _erase(self, conversation: ConversationId) -> None:
        if await self.store.has(conversation):
            await self.store.delete(conversation)
        await self.blobs.delete(conversation)

    # --- effects --------------------------------------------------------------

    def _submit(
        self, effects: HubEffects, conversation: ConversationId | None = None
    ) -> "asyncio.Future[None]":
        named = (conversation, *(conversation_of(frame) for _, frame in effects.send))
        about = {one for one in named if one is not None}
        return self.performer.submit(effects.persist, lambda lost: self._send(effects, lost), about)

    def _send(self, effects: HubEffects, lost: Conversations = frozenset()) -> None:
        for link_id, frame in effects.send:
            sink = self._sinks.get(link_id)
            if sink is not None and conversation_of(frame) not in lost:
                sink(frame)
        for link_id, hint in effects.hints:
            sink = self._sinks.get(link_id)
            if sink is not None and hint.conversation not in lost:
                sink(hint)
        for link_id in effects.closed:
            sink = self._sinks.get(link_id)
            if sink is not None:
                sink(None)
        if self.hub.shelf.is_over_bound:
            self._evict()

    def _undo(self, error: StoreError, lost: Conversations) -> None:
        """Report the refused commit to the core; send at once, since all queued work fails."""
        self._send(self.hub.disk_refused(lost, Fault.of(error)))

    def _evict(self) -> None:
        self.hub.evict(self.performer.writing | self._loader.asked)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            self.streams.handle_deadlines(now)
            self._submit(self.hub.handle_deadlines(now))
            self._evict()
