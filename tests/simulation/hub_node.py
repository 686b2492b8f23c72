"""The hub: the real core of syncd with simulated wires and disk."""

from functools import partial

from replica.commits import Conversations
from replica.conversation.conversation import Conversation
from replica.ids import ConversationId, PublicKey
from replica.link.effects import conversation_of
from replica.link.frame import Frame
from replica.link.messages import Fault, Message
from replica.refusals import StoreFull
from syncd.hub import Hub, HubEffects, LinkId
from syncd.later_steps import next_link, resume
from syncd.links.postponed import Key
from syncd.policy import Policy
from tests.simulation.network import Wire
from tests.simulation.node import Node, Steps

TICK_S = 5.0
RESUME_S = 0.01


class HubNode(Node):
    """Drives a Hub as syncd does: persist, then send, in the order returned."""

    role = "hub"
    key = PublicKey(b"hub".ljust(32, b"."))

    def restore(self) -> None:
        self.wires: dict[LinkId, Wire] = {}
        self.hub = self._empty()
        for conversation in self.disk.conversations():
            self._load(conversation)
        self.later(TICK_S, self._tick)

    def _empty(self) -> Hub:
        hub = Hub(self.key, Policy(conversations_in_memory_max=self.mix.hub_memory))
        hub.connected.postponed.drive()
        return hub

    def _load(self, conversation: ConversationId) -> None:
        entries = self.disk.conversations().get(conversation, ())
        self._queue(self.hub.load(conversation, entries, self.disk.lost_of(conversation)))
        held = self.hub.shelf.get(conversation)
        if held is not None:
            self.oracle.stores.restored(self.name, self.disk, held)

    def held(self, conversation: ConversationId) -> Conversation | None:
        """Return the hub's conversation, loaded from its disk if necessary."""
        if conversation not in self.hub.shelf and conversation in self.disk.conversations():
            self._load(conversation)
        return self.hub.shelf.get(conversation)

    def undo(self, lost: Conversations) -> None:
        """Report the refused commit to the core; send at once, since all queued work fails."""
        for _, step in self._steps(self.hub.disk_refused(lost, Fault.of(StoreFull()))):
            step()

    def forget_memory(self) -> None:
        wires, self.wires = self.wires, {}
        self.hub = self._empty()
        for wire in wires.values():
            wire.break_off()

    def _tick(self) -> None:
        self._do(self.hub.handle_deadlines(self.clock.now))
        self.later(TICK_S, self._tick)

    def accept(self, wire: Wire, peer: PublicKey) -> None:
        """Accept a new stream of an authenticated key."""
        link_id = self.hub.connect(peer, self.clock.now)
        wire.link_id = link_id
        self.oracle.delivery.connected(link_id)
        self.wires[link_id] = wire

    def receive_frame(self, wire: Wire, message: Message, size_bytes: int) -> None:
        link_id = LinkId(wire.link_id)
        if self.is_alive and self.wires.get(link_id) is wire:
            conversation, peer = conversation_of(message), self.hub.links[link_id].peer
            assert peer is not None, "streams come with an authenticated key"
            if conversation is not None and self.hub.needs_load(peer, conversation, message):
                self._load(conversation)
            self.oracle.delivery.received(link_id, message)
            self._do(self.hub.receive(link_id, message, self.clock.now, size_bytes))
        else:
            wire.break_off()  # a connection of an earlier incarnation is reset

    def wire_broken(self, wire: Wire) -> None:
        link_id = LinkId(wire.link_id)
        if self.is_alive and self.wires.get(link_id) is wire:
            self._end_link(link_id)

    def _end_link(self, link_id: LinkId) -> None:
        wire = self.wires.pop(link_id, None)
        self.hub.disconnect(link_id)
        if wire is not None:
            wire.break_off()

    def _do(self, effects: HubEffects) -> None:
        self._queue(effects)
        for key in self.hub.connected.postponed.take_new():
            self.later(RESUME_S, partial(self._resume, key))
        for conversation in self.hub.evict(self.commits.writing):
            self.trace(f"evicts {conversation.hex()[:6]}")

    def _resume(self, key: Key) -> None:
        if next_link(self.hub, key) is not None:
            self._do(resume(self.hub, key))
            self.later(RESUME_S, partial(self._resume, key))

    def _queue(self, effects: HubEffects) -> None:
        steps = self._steps(effects)
        if effects.persist or steps:
            about = {conversation for conversation, _ in steps if conversation is not None}
            self.submit(effects.persist, about, steps)

    def _steps(self, effects: HubEffects) -> Steps:
        self.oracle.delivery.decided(self.hub, effects)
        steps: Steps = [
            (conversation_of(frame), partial(self._send, link_id, frame))
            for link_id, frame in effects.send
        ]
        return steps + [(None, partial(self._end_link, link_id)) for link_id in effects.closed]

    def _send(self, link_id: LinkId, frame: Frame) -> None:
        wire = self.wires.get(link_id)
        if wire is not None:
            self.oracle.calm.sent(link_id, "to_client", frame.message)
            wire.send(frame, "to_client")
