"""A replica: the real core, commits and author with a simulated wire and disk."""

from functools import partial

from replica.commits import Conversations
from replica.conversation.conversation import Conversation
from replica.conversation.shelf import MemoryShelf
from replica.conversation.store_epochs import StoreEpochs
from replica.core import FollowPolicy, Leaves, ReplicaCore, ReplicaEffects
from replica.ids import ConversationId
from replica.limits import VERSION
from replica.link.effects import conversation_of
from replica.link.events import (
    Compared,
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
from replica.link.frame import Frame
from replica.link.messages import Fault, Hello, HostInfo, Message
from replica.log.entry import Entry
from replica.refusals import StoreFull
from tests.simulation.clock import Clock
from tests.simulation.hub_node import HubNode
from tests.simulation.network import Network, Wire
from tests.simulation.node import Node, Steps
from tests.simulation.oracle import Oracle, Violation
from tests.simulation.witness import SYNC_S, Witness
from tests.simulation.writer import Writer, key_of


class ReplicaNode(Node):
    """Drives a replica's core as replica/io/driver/driver.py does."""

    role = "person"
    is_selective = False
    """Whether only what is asked for is open, one conversation at a time."""

    def __init__(
        self, name: str, clock: Clock, network: Network, oracle: Oracle, hub: HubNode
    ) -> None:
        super().__init__(name, clock, network, oracle)
        self.key, self.public = key_of(name)
        self.writer = Writer(self)
        self.witness = Witness(self)
        self.hub = hub
        self.joined: set[ConversationId] = set()
        self.is_careless = False
        self.wire: Wire | None = None

    # --- starts and crashes ------------------------------------------------------------------

    def restore(self) -> None:
        hello = Hello((VERSION,), follow=self.mix.follow, host=self.host_info())
        known_hub = self.hub.key if self.mix.remember_acks else None
        self.shelf = MemoryShelf()
        policy = FollowPolicy(open_max=1, unasked_max=0, idle_s=2.0) if self.is_selective else None
        self.epochs = StoreEpochs(self.name.encode())
        self.core = ReplicaCore(
            self.public, hello, self.shelf, known_hub, policy, is_own_epoch=self.epochs.is_own
        )
        self.wire = None
        self.confirmed: set[ConversationId] = set()
        self.states: dict[ConversationId, SyncState] = {}
        self._wake: float | None = None
        for conversation in sorted(self.disk.conversations()):
            self._load(conversation)
        for conversation in sorted(self.joined):
            self.do(self.core.follow(conversation, self.clock.now, drafts=True))
        self._connect()
        if self.mix.syncs:
            self.later(SYNC_S, self.witness.sync)

    def forget_memory(self) -> None:
        self.oracle.drafts.crashed(self.name)
        self.oracle.comparisons.forgotten(self.name)
        wire, self.wire = self.wire, None
        if wire is not None:
            wire.break_off()

    def host_info(self) -> HostInfo | None:
        return None

    def undo(self, lost: Conversations) -> None:
        """Report the refused commit to the core; send at once, since all queued work fails."""
        effects = self.core.disk_refused(lost, Fault.of(StoreFull()), self.clock.now)
        for _, step in self._steps(effects):
            step()
        self._wake_at(effects.wake_at)

    def join(self, conversation: ConversationId) -> None:
        """Follow a conversation whose id came with the grant, outside the protocol."""
        if self.is_selective:
            return
        if self.is_alive:
            self.do(self.core.follow(conversation, self.clock.now, drafts=True))
        self.joined.add(conversation)

    def leave(self, conversation: ConversationId) -> None:
        self.joined.discard(conversation)
        self.oracle.calm.left(self.name)
        self.do(self.core.unfollow(conversation))

    def _load(self, conversation: ConversationId) -> None:
        entries, lost = self.disk.conversations().get(conversation), self.disk.lost_of(conversation)
        held = None
        if entries or lost:
            held = Conversation.restore(conversation, entries or (), lost)
            self.oracle.stores.restored(self.name, self.disk, held)
        acked = self.disk.acks.get(conversation, set()) if self.mix.remember_acks else ()
        self.do(self.core.loaded(conversation, held, sorted(acked), self.clock.now))
        if held is not None and self.is_careless:
            own = [e for e in held.log.entries.values() if e.header.author == self.public]
            if own:
                newest = max(own, key=lambda e: e.order_key)
                self.core.epochs.begin(conversation, newest.header.epoch)

    # --- the wire ---------------------------------------------------------------

    def _connect(self) -> None:
        if self.wire is not None:
            return
        cut = self.network.cut_off.get(self.name)
        if cut or not self.hub.is_alive:
            self.later(1.0, self._connect)
            return
        self.wire = wire = Wire(self.network, self.name, self, self.hub)
        self.hub.accept(wire, self.public)
        self.trace("connect")
        self.do(self.core.connected(self.hub.key, self.clock.now))

    def receive_frame(self, wire: Wire, message: Message, size_bytes: int) -> None:
        if wire is not self.wire:
            wire.break_off()
            return
        self.oracle.in_flight.received(self.name, message)
        self.do(self.core.receive(message, self.clock.now, size_bytes))
        if self.core.has_ended:
            self._unlink()

    def wire_broken(self, wire: Wire) -> None:
        if wire is self.wire:
            self._unlink()

    def _unlink(self) -> None:
        wire, self.wire = self.wire, None
        if wire is not None:
            wire.break_off()
        self.do(self.core.disconnected(self.clock.now))
        self.witness.check_acked()
        self.later(self.core.reconnect_pause_s(self.random.random()), self._connect)

    # --- effects -----------------------------------------------------------------

    def do(self, effects: ReplicaEffects) -> None:
        self._wake_at(effects.wake_at)
        for conversation, positions in effects.acked:
            self.oracle.stores.acked(self.name, positions, self.hub.disk)
            self.disk.acks.setdefault(conversation, set()).update(positions)
        for conversation in effects.load:
            self.later(self.random.choice((0.0, 0.0, 0.3)), partial(self._load, conversation))
        steps = self._steps(effects)
        if effects.persist or steps:
            self.submit(effects.persist, effects.about, steps)

    def _steps(self, effects: ReplicaEffects) -> Steps:
        wire = self.wire
        if wire is None and effects.send:
            raise Violation(f"{self.name} sends without a link")
        for frame in effects.send:
            self.oracle.in_flight.sent(self.name, wire, frame.message)
        steps: Steps = [(conversation_of(f), partial(self._send, wire, f)) for f in effects.send]
        steps += [(conversation_of(e), partial(self._deliver, e)) for e in effects.deliver]
        steps += [(None, partial(_evict, self, conversation)) for conversation in effects.closed]
        return steps

    def _send(self, wire: Wire | None, frame: Frame) -> None:
        if wire is not None and wire is self.wire:
            self.witness.sent(wire, frame.message)
            wire.send(frame, "to_hub")

    def _wake_at(self, wake_at: float | None) -> None:
        if wake_at is None or wake_at == self._wake:
            return
        self._wake = wake_at
        delay_s = max(0.0, wake_at - self.clock.now) + self.mix.late_s
        self.later(delay_s, partial(self._wake_up, wake_at))

    def _wake_up(self, wake_at: float) -> None:
        if self._wake == wake_at:
            self._wake = None
            self.do(self.core.handle_deadline(self.clock.now))
            if self.core.has_ended:
                self._unlink()

    def _deliver(self, event: Event) -> None:
        match event:
            case EntriesAdmitted(conversation, entries):
                self.witness.admitted(event, self.shelf.get(conversation))
                self.entries_admitted(conversation, entries)
            case EntriesAcked(_, positions):
                self.witness.acked(positions)
            case StateChanged(conversation, state):
                self.trace(f"{conversation.hex()[:6]} {state.value}")
                self.states[conversation] = state
                self.oracle.drafts.state(self.name, conversation, state, self.clock.now)
                self.oracle.calm.state(self.name, state)
                if state is SyncState.SYNCHRONIZED:
                    self.confirmed.add(conversation)
                    self.synchronized(conversation)
            case Compared(conversation, since):
                self.witness.compared(conversation, since)
            case Listed(items):
                if not self.is_selective:
                    self.joined.update(item.conversation for item in items)
            case EntryFailed(_, entry, fault):
                self.trace(f"failed {fault.reason} {entry.hex()[:6] if entry else '-'}")
                self.oracle.stores.failed(self.name, entry, fault, self.hub.disk)
            case DraftReceived(draft):
                self.oracle.drafts.read(self.name, self.incarnation, draft)
            case LinkClosed():
                self.trace("link closed")
            case _:
                pass

    def entries_admitted(
        self, conversation: ConversationId, entries: tuple[Entry, ...]
    ) -> None: ...

    def synchronized(self, conversation: ConversationId) -> None: ...


def _evict(node: ReplicaNode, conversation: ConversationId) -> None:
    """Drop a closed conversation from memory once its entries are durable."""
    match node.core.listed.leaves(conversation, node.commits.writing):
        case Leaves.NOW:
            node.do(node.core.forget(conversation))
        case Leaves.LATER:
            node.submit((), {conversation}, [(None, partial(_evict, node, conversation))])
