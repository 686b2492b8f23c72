"""The acks of a hub, by conversation: the entries it is known to hold durably (spec/04-link §5).

Pure. A driver saves them, so that the next link compares a digest of 32 bytes only.
"""

from collections.abc import Iterable

from replica.conversation import Conversation
from replica.ids import ConversationId, EntryId, Position
from replica.link.comparison import compare_heads
from replica.link.events import EntriesAcked, EntriesAdmitted, Event


class Acks:
    """The newest acknowledged position of each lane."""

    def __init__(self) -> None:
        """Start without any acks."""
        self._positions: dict[ConversationId, tuple[Position, ...]] = {}

    def __contains__(self, conversation: ConversationId) -> bool:
        """Say whether the acks of a conversation were loaded or noted; they may be empty."""
        return conversation in self._positions

    def load(self, conversation: ConversationId, positions: Iterable[Position]) -> None:
        """Set the saved acks of a conversation."""
        self._positions[conversation] = tuple(positions)

    def forget(self, conversation: ConversationId) -> None:
        """Forget a conversation."""
        self._positions.pop(conversation, None)

    def note(self, conversation: ConversationId, positions: Iterable[Position]) -> None:
        """Note entries as durable at the hub, with their lane ancestors.

        They replace the known positions of their lanes, because a hub that lost
        a conversation acknowledges it again from the genesis.
        """
        newest = {p.lane: p for p in sorted(positions)}
        kept = (p for p in self.positions(conversation) if p.lane not in newest)
        self._positions[conversation] = (*kept, *newest.values())

    def positions(self, conversation: ConversationId) -> tuple[Position, ...]:
        """Return the newest acknowledged position of each lane."""
        return self._positions.get(conversation, ())

    def unacked(self, held: Conversation) -> set[EntryId]:
        """Return the ids the hub is not known to hold; the next link begins with them."""
        acked = compare_heads(held.log, self.positions(held.id))
        return set(held.log.covered()) - acked.held


def acked_by(events: Iterable[Event]) -> dict[ConversationId, tuple[Position, ...]]:
    """Return the positions a hub's frame shows that it holds: entries it acked or sent."""
    found: dict[ConversationId, tuple[Position, ...]] = {}
    for event in events:
        match event:
            case EntriesAcked(conversation, positions):
                found[conversation] = (*found.get(conversation, ()), *positions)
            case EntriesAdmitted(conversation, entries, freed):
                # What the hub's entries set free was held here alone: the hub may lack it.
                sent = (entry.position for entry in entries if entry.id not in freed)
                found[conversation] = (*found.get(conversation, ()), *sent)
            case _:
                pass
    return found
