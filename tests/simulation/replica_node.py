"""A replica: the real Link and Author behind a simulated wire and disk."""

from functools import lru_cache, partial

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from replica.conversation.author import Author
from replica.conversation.conversation import Conversation, Shelf
from replica.ids import ConversationId, EntryId, PublicKey, Track
from replica.link.effects import Effects
from replica.link.events import (
    DraftReceived,
    EntriesAcked,
    EntriesAdmitted,
    EntryFailed,
    Event,
    LinkClosed,
    Listed,
    StateChanged,
    SyncState,
)
from replica.link.exchange import Side
from replica.link.link import VERSION, Link
from replica.link.messages import Hello, HostInfo, Message
from replica.log.body import Body, Genesis
from replica.log.entry import Conflict, Entry, Kind
from tests.simulation.clock import Clock
from tests.simulation.hub_node import HubNode
from tests.simulation.network import Network, Wire
from tests.simulation.node import Node, Step
from tests.simulation.oracle import Oracle

TRACKS = (Track.CONVERSATION, Track.DOCUMENT, Track.MEMBERSHIP)


@lru_cache(maxsize=64)
def key_of(name: str) -> tuple[Ed25519PrivateKey, PublicKey]:
    """Return the key of a name, the same in every seed."""
    key = Ed25519PrivateKey.from_private_bytes(name.encode().ljust(32, b"*"))
    return key, PublicKey(key.public_key().public_bytes_raw())


class Unchecked(Author):
    """An author of a client that looks up no roles: what it may not write is void for all."""

    def may_write(self, held: Conversation, body: Body) -> bool:
        return True


class ReplicaNode(Node):
    """Drives a client Link as the library's client does."""

    role = "person"

    def __init__(
        self, name: str, clock: Clock, network: Network, oracle: Oracle, hub: HubNode
    ) -> None:
        super().__init__(name, clock, network, oracle)
        self.key, self.public = key_of(name)
        self.hub = hub
        self.joined: set[ConversationId] = set()
        self.is_careless = False
        self.link: Link | None = None
        self.wire: Wire | None = None
        self.shelf: Shelf = {}

    # --- life ------------------------------------------------------------------

    def restore(self) -> None:
        self.shelf = {}
        for conversation, entries in self.disk.conversations().items():
            self.shelf[conversation] = Conversation.restore(conversation, entries)
            self.oracle.restored(self.name, entries, self.shelf[conversation])
        self.link = self.wire = None
        self.confirmed: set[ConversationId] = set()
        self.epochs: dict[ConversationId, int] = {}
        self.states: dict[ConversationId, SyncState] = {}
        self._wake: float | None = None
        self._connect()

    def forget_memory(self) -> None:
        wire, self.wire, self.link = self.wire, None, None
        if wire is not None:
            wire.break_off()

    def host_info(self) -> HostInfo | None:
        return None

    def _connect(self) -> None:
        if self.link is not None:
            return
        cut = self.network.cut_off.get(self.name)
        if cut or not self.hub.is_alive:
            self.later(1.0, self._connect)
            return
        self.wire = wire = Wire(self.network, self.name, self, self.hub)
        self.hub.accept(wire, self.public)
        now = self.clock.now
        self.link = Link(Side.CLIENT, key=self.public, peer=None, shelf=self.shelf, now=now)
        self.trace("connect")
        hello = Hello((VERSION,), follow=self.mix.follow, host=self.host_info())
        self.perform(self.link.start(hello))
        for conversation in sorted(self.joined):
            self._open(conversation)

    def _open(self, conversation: ConversationId) -> None:
        if self.link is None:
            return
        acked = self.disk.acks.get(conversation, set()) if self.mix.remember_acks else ()
        self.perform(self.link.open(conversation, self.clock.now, acked=sorted(acked)))

    def join(self, conversation: ConversationId) -> None:
        """Follow a conversation; told by whoever granted the key."""
        if self.is_alive and conversation not in self.joined:
            self._open(conversation)
        self.joined.add(conversation)

    def leave(self, conversation: ConversationId) -> None:
        self.joined.discard(conversation)
        if self.link is not None:
            self.perform(self.link.leave(conversation))

    # --- the wire ---------------------------------------------------------------

    def receive_frame(self, wire: Wire, message: Message, size_bytes: int) -> None:
        if wire is not self.wire or self.link is None:
            wire.break_off()
            return
        self.perform(self.link.receive(message, self.clock.now, size_bytes))

    def wire_broken(self, wire: Wire) -> None:
        if wire is self.wire and self.link is not None:
            self.perform(self.link.handle_disconnect())

    def _unlink(self) -> None:
        wire, self.wire, self.link = self.wire, None, None
        if wire is not None:
            wire.break_off()
        self.later(self.random.choice((0.1, 2.0)), self._connect)

    # --- effects -----------------------------------------------------------------

    def perform(self, effects: Effects) -> None:
        wire = self.wire
        steps: list[Step] = [partial(self._send, wire, message) for message in effects.send]
        steps += [partial(self._deliver, self.link, event) for event in effects.deliver]
        if effects.persist or steps:
            self.submit(effects.persist, steps)
        wake_at = effects.wake_at
        if wake_at is not None and (self._wake is None or wake_at < self._wake):
            self._wake = wake_at
            self.later(wake_at - self.clock.now, partial(self._wake_up, wake_at))

    def _send(self, wire: Wire | None, message: Message) -> None:
        if wire is not None and wire is self.wire:
            wire.send(message, "to_hub")

    def _wake_up(self, wake_at: float) -> None:
        if self._wake == wake_at:
            self._wake = None
            if self.link is not None:
                self.perform(self.link.handle_deadline(self.clock.now))

    def _deliver(self, link: Link | None, event: Event) -> None:
        match event:
            case EntriesAdmitted(conversation, entries):
                self.oracle.accepted(self.name, entries, self.shelf[conversation])
                self.entries_admitted(conversation, entries)
            case EntriesAcked(conversation, positions):
                self.oracle.acked(self.name, positions, self.hub.disk)
                self.disk.acks.setdefault(conversation, set()).update(positions)
            case StateChanged(conversation, state):
                self.trace(f"{conversation.hex()[:6]} {state.value}")
                self.states[conversation] = state
                if state is SyncState.SYNCHRONIZED:
                    self.confirmed.add(conversation)
                    self.synchronized(conversation)
            case Listed(items):
                for item in items:
                    self.join(item.conversation)
            case EntryFailed(_, entry, fault):
                self.trace(f"failed {fault.reason} {entry.hex()[:6] if entry else '-'}")
                self.oracle.failed(self.name, fault)
            case DraftReceived(draft):
                self.oracle.draft_read(self.name, self.life, draft)
            case LinkClosed() if link is self.link:
                self.trace("link closed")
                self._unlink()
            case _:
                pass

    def entries_admitted(
        self, conversation: ConversationId, entries: tuple[Entry, ...]
    ) -> None: ...

    def synchronized(self, conversation: ConversationId) -> None: ...

    # --- writing --------------------------------------------------------------------

    def create(self, owners: tuple[PublicKey, ...]) -> ConversationId:
        author = Unchecked(self.key, self._new_epoch())
        body = Genesis(owners)
        entry = author.genesis(body, salt=self.random.randbytes(16), time_ms=self._time_ms())
        conversation = ConversationId(entry.id)
        self.shelf[conversation] = Conversation(conversation)
        self.epochs[conversation] = author.epoch
        self._append(entry, body)
        self.join(conversation)
        return conversation

    def write(
        self,
        conversation: ConversationId,
        body: Body,
        parents: tuple[EntryId, ...],
        *,
        basis: EntryId | None = None,
        conflict: Conflict = Conflict.QUEUE,
    ) -> Entry:
        """Write the next entry of our own, durable before it is sent."""
        held = self.shelf[conversation]
        entry = self._author(held).write(
            held,
            body,
            parents=parents,
            basis=basis,
            conflict=conflict,
            salt=self.random.randbytes(16),
            time_ms=self._time_ms(),
        )
        self._append(entry, body)
        return entry

    def _append(self, entry: Entry, body: Body) -> None:
        self.oracle.authored(self.name, entry, body)
        self.trace(f"writes {Kind(entry.header.kind).name} {entry.id.hex()[:6]}")
        link = self.link or Link(
            Side.CLIENT, key=self.public, peer=None, shelf=self.shelf, now=self.clock.now
        )
        effects = link.append(entry, self.clock.now)
        self.perform(
            effects if self.link is not None else Effects(effects.persist, (), effects.deliver)
        )

    def _author(self, held: Conversation) -> Unchecked:
        """Go on in an epoch only where the hub has confirmed what we hold since the start."""
        epoch = self.epochs.get(held.id)
        if epoch is None:
            own = [e for e in held.log.entries.values() if e.header.author == self.public]
            newest = max(own, key=lambda e: e.order_key).header.epoch if own else None
            careless = self.is_careless and newest is not None
            epoch = newest if careless or held.id in self.confirmed else None
        if epoch is None or self._is_forked(held, epoch):
            epoch = self._new_epoch()
        self.epochs[held.id] = epoch
        return Unchecked(self.key, epoch)

    def _is_forked(self, held: Conversation, epoch: int) -> bool:
        author = Unchecked(self.key, epoch)
        return any(len(held.log.lane_tips(author.lane(track))) > 1 for track in TRACKS)

    def _new_epoch(self) -> int:
        return self.random.getrandbits(64) | 1

    def _time_ms(self) -> int:
        return 1_700_000_000_000 + int(self.clock.now * 1000)
