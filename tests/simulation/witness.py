"""Reports a replica's sent, admitted and acknowledged entries to the oracle."""

from typing import TYPE_CHECKING

from replica.conversation.conversation import Conversation
from replica.ids import ConversationId, Position
from replica.link.events import EntriesAdmitted, SyncState
from replica.link.messages import Entries, Message, Open
from replica.log.body import Generation, Seal
from tests.simulation.network import Wire

if TYPE_CHECKING:
    from tests.simulation.replica_node import ReplicaNode


SYNC_S = 0.7
"""Time between two comparisons that a replica asks for."""


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

    def sync(self) -> None:
        """Ask for what the hub holds of each conversation, as `sync()` does, again and again."""
        node = self._node
        for conversation in sorted(node.shelf):
            held = node.hub.held(conversation) if node.hub.is_alive else None
            if held is not None:
                node.oracle.comparisons.asked(node.name, conversation, node.clock.now, held)
                node.do(node.core.compare(conversation, node.clock.now))
        if node.clock.now < node.mix.span_s:
            node.later(SYNC_S, self.sync)

    def compared(self, conversation: ConversationId, since: float) -> None:
        """Report a comparison that the hub has answered, where the replica is in sync by it."""
        node, held = self._node, self._node.shelf.get(conversation)
        is_synced = node.states.get(conversation) is SyncState.SYNCHRONIZED
        if held is not None and is_synced and not node.core.holdings.expects_acks(conversation):
            hub = node.hub.held(conversation) if node.hub.is_alive else None
            node.oracle.comparisons.answered(node.name, held, since, hub)
