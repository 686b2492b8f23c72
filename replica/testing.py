"""An in-memory network of a hub core and clients, for tests (DECISIONS D85).

    network = Network(Hub(hub_key, Policy()))
    ada = network.connect(ada_key)
    ada.open(conversation)
    ada.append(entry)                  # persisted, sent, acked, passed on to all others
    network.loses = lambda message: isinstance(message, Ack)
    network.advance(limits.RESYNC_S)   # all links do the work that is due by then

Synchronous and deterministic: each call delivers everything that follows from
it before it returns. Messages are sent as bytes, so the codec is tested too.
The clock is advanced by `advance` only. Each side records the messages it
received and the entries it made durable, for tests to inspect.
"""

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol, TypeVar

from replica.conversation import Conversation, MemoryShelf
from replica.ids import ConversationId, Position, PublicKey
from replica.limits import VERSION
from replica.link import (
    Close,
    Effects,
    Event,
    Fault,
    Frame,
    Hello,
    Link,
    Message,
    Side,
    SyncState,
    decode_frame,
)
from replica.log import Entry

LinkId = Any
"""The hub core's name of a link."""
_T = TypeVar("_T")


class HubEffects(Protocol):
    """The effects of a hub core: persist first, then send, then end links."""

    @property
    def persist(self) -> tuple[Entry, ...]:
        """Entries to make durable."""

    @property
    def send(self) -> Iterable[tuple[LinkId, Frame]]:
        """Frames with the link they go to."""

    @property
    def closed(self) -> Iterable[LinkId]:
        """Links to end."""


class HubCore(Protocol):
    """The part of a hub that links use; syncd.hub.Hub implements it."""

    def connect(self, peer: PublicKey, now: float) -> LinkId:
        """Add a link of an authenticated key; return its name."""

    def disconnect(self, link_id: LinkId) -> None:
        """Forget a link."""

    def receive(
        self, link_id: LinkId, message: Message, now: float, frame_bytes: int = 0
    ) -> HubEffects:
        """Receive one message; `frame_bytes` is its encoded size."""

    def handle_deadlines(self, now: float) -> HubEffects:
        """Do the work that is due at `now`, in seconds."""


def of(kind: type[_T], items: Iterable[object]) -> list[_T]:
    """Return the messages or events of one kind, in order; frames count as their messages."""
    shown = (item.message if isinstance(item, Frame) else item for item in items)
    return [item for item in shown if isinstance(item, kind)]


def shelf_of(*entries: Entry) -> MemoryShelf:
    """Return the shelf of a client that has these entries stored."""
    stored: dict[ConversationId, list[Entry]] = {}
    for entry in entries:
        stored.setdefault(entry.conversation, []).append(entry)
    return MemoryShelf(Conversation.restore(one, held) for one, held in stored.items())


class Peer:
    """The client end of one link, with all it stored, sent, received and delivered."""

    def __init__(self, network: "Network", public: PublicKey, shelf: MemoryShelf) -> None:
        """Use `Network.connect` instead."""
        self.network = network
        self.public = public
        self.shelf = shelf
        self.link = Link(Side.CLIENT, key=public, peer=None, shelf=shelf, now=network.now)
        self.link_id: LinkId = None
        self.stored: list[Entry] = []
        self.sent: list[Message] = []
        self.received: list[Message] = []
        self.events: list[Event] = []

    # --- actions ------------------------------------------------------------

    def open(
        self,
        conversation: ConversationId,
        *,
        acked: Iterable[Position] = (),
        drafts: bool = True,
    ) -> None:
        """Start syncing a conversation."""
        now = self.network.now
        self.perform(self.link.open(conversation, now, acked=acked, drafts=drafts))

    def append(self, *entries: Entry) -> None:
        """Append entries of this client. Raises EntryRefused."""
        for entry in entries:
            self.perform(self.link.append(entry, self.network.now))

    def send(self, *messages: Message) -> None:
        """Send any messages, also invalid ones."""
        for message in messages:
            self.perform(Effects(send=(Frame.of(message, "to_hub"),)))

    def receive(self, message: Message) -> None:
        """Receive a message as if the hub had sent it now."""
        self.perform(self.link.receive(message, self.network.now))

    def perform(self, effects: Effects) -> None:
        """Perform effects of the link, and deliver everything that follows."""
        self.stored += effects.persist
        self.sent += [frame.message for frame in effects.send]
        self.events += effects.deliver
        for frame in effects.send:
            self.network.carry_to_hub(self, frame)
        if effects.wake_at is not None and effects.wake_at <= self.network.now:
            self.network.do_next(self.handle_deadline)
        self.network.run()

    def handle_deadline(self) -> None:
        """Let the link do the work that is due."""
        self.perform(self.link.handle_deadline(self.network.now))

    # --- results ------------------------------------------------------------

    def held(self, conversation: ConversationId) -> Conversation:
        """Return this client's copy of a conversation."""
        return self.shelf[conversation]

    def state(self, conversation: ConversationId) -> SyncState:
        """Return the sync state of a conversation that is open."""
        return self.link.channels[conversation].state

    @property
    def faults(self) -> list[str]:
        """The reasons of the faults received, in order, those of Close messages included."""
        faults = (m.fault if isinstance(m, Close) else m for m in self.received)
        return [fault.reason for fault in of(Fault, faults)]


class Network:
    """A hub and any number of clients; only messages that `loses` selects are lost."""

    def __init__(self, hub: HubCore) -> None:
        """Start at time 0 with no client."""
        self.hub = hub
        self.now = 0.0
        """The time on all clocks, in seconds."""
        self.stored: list[Entry] = []
        """Entries the hub made durable, in order."""
        self.peers: dict[LinkId, Peer] = {}
        self.closed: list[LinkId] = []
        """Links the hub ended, in order."""
        self.loses: Callable[[Message], bool] = lambda _message: False
        """Decides for each message, in both directions, whether it is lost."""
        self._queue: deque[Callable[[], None]] = deque()
        self._is_running = False

    def connect(
        self, public: PublicKey, *, shelf: MemoryShelf | None = None, hello: Hello | None = None
    ) -> Peer:
        """Link a client; a given `shelf` can be used again after the link ended."""
        peer = Peer(self, public, MemoryShelf() if shelf is None else shelf)
        peer.link_id = self.hub.connect(public, self.now)
        self.peers[peer.link_id] = peer
        peer.perform(peer.link.start(hello or Hello((VERSION,), follow=True)))
        return peer

    def disconnect(self, peer: Peer) -> None:
        """Disconnect a client; both sides are notified."""
        self.silence(peer)
        self.hub.disconnect(peer.link_id)
        peer.events += peer.link.handle_disconnect().deliver

    def silence(self, peer: Peer) -> None:
        """Disconnect a client; neither side is notified."""
        self.peers.pop(peer.link_id, None)

    def advance(self, seconds: float) -> None:
        """Advance the clock, then let all sides do the work that is due."""
        self.now += seconds
        for peer in tuple(self.peers.values()):
            peer.handle_deadline()
        self.perform(self.hub.handle_deadlines(self.now))

    def perform(self, effects: HubEffects) -> None:
        """Perform effects of the hub, and deliver everything that follows."""
        self._queue_effects(effects)
        self.run()

    # --- delivery -------------------------------------------------------------

    def carry_to_hub(self, peer: Peer, frame: Frame) -> None:
        """Queue a client's frame for the hub, unless it is lost."""
        if not self.loses(frame.message):
            self._queue.append(partial(self._arrive_at_hub, peer, frame.data))

    def do_next(self, step: Callable[[], None]) -> None:
        """Queue a step behind all deliveries queued before it."""
        self._queue.append(step)

    def run(self) -> None:
        """Deliver until the queue is empty."""
        if self._is_running:
            return  # called by a delivery: the outer call continues
        self._is_running = True
        try:
            while self._queue:
                self._queue.popleft()()
        finally:
            self._is_running = False

    def _arrive_at_hub(self, peer: Peer, data: bytes) -> None:
        if peer.link_id in self.peers:
            message = decode_frame(data, "to_hub")
            self._queue_effects(self.hub.receive(peer.link_id, message, self.now, len(data)))

    def _arrive_at_client(self, peer: Peer, data: bytes) -> None:
        message = decode_frame(data, "to_client")
        peer.received.append(message)
        peer.perform(peer.link.receive(message, self.now, len(data)))

    def _queue_effects(self, effects: HubEffects) -> None:
        self.stored += effects.persist
        for link_id, frame in effects.send:
            peer = self.peers.get(link_id)
            if peer is not None and not self.loses(frame.message):
                self._queue.append(partial(self._arrive_at_client, peer, frame.data))
        for link_id in effects.closed:
            self.closed.append(link_id)
            self._queue.append(partial(self._end, link_id))

    def _end(self, link_id: LinkId) -> None:
        peer = self.peers.get(link_id)
        if peer is not None:
            self.disconnect(peer)
        else:
            self.hub.disconnect(link_id)


class Pair(Network):
    """One client and one hub, linked."""

    def __init__(self, hub: HubCore, public: PublicKey) -> None:
        """Link them."""
        super().__init__(hub)
        self.client = self.connect(public)
