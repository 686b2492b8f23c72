"""The hub: the real core of syncd behind simulated wires and disk."""

from functools import partial

from replica.ids import PublicKey
from replica.link.effects import conversation_of
from replica.link.frame import Frame
from replica.link.messages import Message
from syncd.hub import Hub, HubEffects, LinkId
from syncd.policy import Policy
from tests.simulation.network import Wire
from tests.simulation.node import Node, Steps

TICK_S = 5.0


class HubNode(Node):
    """Drives a Hub as syncd does: persist, then send, in the order returned."""

    role = "hub"
    key = PublicKey(b"hub".ljust(32, b"."))

    def restore(self) -> None:
        self.wires: dict[LinkId, Wire] = {}
        self.hub = Hub(self.key, Policy())
        for conversation, entries in self.disk.conversations().items():
            self.hub.load(conversation, entries, self.disk.lost_of(conversation))
            self.oracle.stores.restored(self.name, self.disk, self.hub.shelf[conversation])
        self.later(TICK_S, self._tick)

    def forget_memory(self) -> None:
        wires, self.wires = self.wires, {}
        self.hub = Hub(self.key, Policy())
        for wire in wires.values():
            wire.break_off()

    def _tick(self) -> None:
        self._do(self.hub.handle_deadlines(self.clock.now))
        self.later(TICK_S, self._tick)

    def accept(self, wire: Wire, peer: PublicKey) -> None:
        """Take a new stream of an authenticated key."""
        link_id = self.hub.connect(peer, self.clock.now)
        wire.link_id = link_id
        self.oracle.delivery.connected(link_id)
        self.wires[link_id] = wire

    def receive_frame(self, wire: Wire, message: Message, size_bytes: int) -> None:
        link_id = LinkId(wire.link_id)
        if self.is_alive and self.wires.get(link_id) is wire:
            self.oracle.delivery.received(link_id, message)
            self._do(self.hub.receive(link_id, message, self.clock.now, size_bytes))
        else:
            wire.break_off()  # a connection this life knows nothing of is reset

    def wire_broken(self, wire: Wire) -> None:
        link_id = LinkId(wire.link_id)
        if self.is_alive and self.wires.get(link_id) is wire:
            self._hang_up(link_id)

    def _hang_up(self, link_id: LinkId) -> None:
        wire = self.wires.pop(link_id, None)
        self.hub.disconnect(link_id)
        if wire is not None:
            wire.break_off()

    def _do(self, effects: HubEffects) -> None:
        self.oracle.delivery.decided(self.hub, effects)
        steps: Steps = [
            (conversation_of(frame), partial(self._send, link_id, frame))
            for link_id, frame in effects.send
        ]
        steps += [(None, partial(self._hang_up, link_id)) for link_id in effects.closed]
        if effects.persist or steps:
            about = {conversation for conversation, _ in steps if conversation is not None}
            self.submit(effects.persist, about, steps)

    def _send(self, link_id: LinkId, frame: Frame) -> None:
        wire = self.wires.get(link_id)
        if wire is not None:
            self.oracle.calm.sent(link_id, "to_client", frame.message)
            wire.send(frame, "to_client")
