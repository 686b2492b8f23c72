"""Reports a replica's sent, admitted and acknowledged entries to the oracle."""

from typing import TYPE_CHECKING

from replica.conversation.conversation import Conversation
from replica.ids import Position
from replica.link.events import EntriesAdmitted
from replica.link.messages import Entries, Message, Open
from replica.log.body import Generation, Seal
from tests.simulation.network import Wire

if TYPE_CHECKING:
    from tests.simulation.replica_node import ReplicaNode


class Witness:
    """The reports of one replica."""

    def __init__(self, node: "ReplicaNode") -> None:
        self._node = node

    def sent(self, wire: Wire, message: Message) -> None:
        """Report a message that is put on the wire."""
        node, oracle = self._node, self._node.oracle
        oracle.stores.sent(node.name, message, node.disk)
        if isinstance(message, Open) and message.heads is not None:
            oracle.calm.compares(node.name, wire.link_id, message.conversation)
        oracle.calm.sent(wire.link_id, "to_hub", message)
        if isinstance(message, Entries) and message.conversation in node.joined:
            oracle.calm.offered(node.name, message.ids, node.clock.now)

    def acked(self, positions: tuple[Position, ...]) -> None:
        """Report positions that the hub acknowledged."""
        node, oracle = self._node, self._node.oracle
        oracle.stores.acked(node.name, positions, node.hub.disk)
        oracle.calm.acked(node.name, tuple(p.id for p in positions), node.clock.now)

    def admitted(self, event: EntriesAdmitted, held: Conversation | None) -> None:
        """Report entries that the log admitted."""
        node, oracle = self._node, self._node.oracle
        oracle.stores.accepted(node.name, event.entries)
        for entry in event.entries:
            body = oracle.history[entry.id].body
            if isinstance(body, Seal):
                oracle.agreement.accepted(node.name, entry.id, held)
            elif isinstance(body, Generation):
                seal = oracle.history[entry.header.parents[0]].body
                if isinstance(seal, Seal):
                    oracle.drafts.answered(node.name, node.incarnation, seal.request, body.run)

    def check_acked(self) -> None:
        """Report the entries that count as acknowledged by now."""
        node, holdings = self._node, self._node.core.holdings
        for conversation, held in node.shelf.items():
            if conversation in holdings.acks and not held.is_blocked:
                acked = held.log.covered() - holdings.unacked(conversation)
                node.oracle.stores.assumed_acked(node.name, acked, node.hub.disk)
