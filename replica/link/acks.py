"""What a hub is known to hold durably: its acks, by conversation (spec/04-link §5).

Pure; a driver saves them, so that the next link needs 32 bytes to agree.
"""

from collections.abc import Iterable

from replica.conversation import Conversation
from replica.ids import ConversationId, EntryId, Position
from replica.link.comparison import compare_heads
from replica.link.events import EntriesAcked, EntriesAdmitted, Event


class Acks:
    """The newest acknowledged position of each lane."""

    def __init__(self) -> None:
        """Start with a hub that has acknowledged nothing."""
        self._positions: dict[ConversationId, tuple[Position, ...]] = {}

    def __contains__(self, conversation: ConversationId) -> bool:
        """Say whether anything is known of a conversation, be it that nothing is acknowledged."""
        return conversation in self._positions

    def load(self, conversation: ConversationId, positions: Iterable[Position]) -> None:
        """Take what was saved of a conversation."""
        self._positions[conversation] = tuple(positions)

    def forget(self, conversation: ConversationId) -> None:
        """Forget a conversation."""
        self._positions.pop(conversation, None)

    def note(self, conversation: ConversationId, positions: Iterable[Position]) -> None:
        """Take entries as durable at the hub, with their lane ancestors.

        They replace what was known of their lanes, because a hub that lost a
        conversation acknowledges it again from the genesis.
        """
        newest = {p.lane: p for p in sorted(positions)}
        kept = (p for p in self.positions(conversation) if p.lane not in newest)
        self._positions[conversation] = (*kept, *newest.values())

    def positions(self, conversation: ConversationId) -> tuple[Position, ...]:
        """Return the newest acknowledged position of each lane."""
        return self._positions.get(conversation, ())

    def unacked(self, held: Conversation) -> set[EntryId]:
        """Return what the hub is not known to hold, as the next link to it will begin with."""
        acked = compare_heads(held.log, self.positions(held.id))
        return set(held.log.covered()) - acked.held


def acked_by(events: Iterable[Event]) -> dict[ConversationId, tuple[Position, ...]]:
    """Return what a hub's frame shows that it holds: what it acked, and what it sent."""
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
