"""Hints: the positions a level-1 client needs for its next append (spec/04-link §9).

Pure. A hint is computed in the step that checks the reader's membership
(DECISIONS D33). Computed later, it could name entries that are not durable yet,
or that were written after the reader was revoked.
"""

from dataclasses import dataclass

from replica.conversation import Conversation
from replica.ids import ConversationId, EntryId, Position, PublicKey
from replica.order import frontier


@dataclass(frozen=True, slots=True)
class Hint:
    """The place of one author's next entry; `tip` is also its basis."""

    conversation: ConversationId
    tip: EntryId | None
    parents: tuple[EntryId, ...]
    lamport: int
    """The lamport of an entry on a fresh lane."""
    own_heads: tuple[Position, ...]
    membership_heads: tuple[EntryId, ...]


def hint_for(held: Conversation, author: PublicKey) -> Hint:
    """Return the place of an author's next entry, after the newest seal that counts."""
    log, order = held.log, held.order
    tips = order.tips()
    tip = tips[-1] if tips else None
    parents = frontier(order, tip)
    named = [*parents, *([tip.id] if tip else [])]
    lanes = (lane for lane in log.lanes() if lane.author == author)
    own = tuple(log.entries[i].position for lane in lanes for i in log.lane_tips(lane))
    lamport = 1 + max(log.entries[i].header.lamport for i in named)
    tip_id = tip.id if tip else None
    return Hint(held.id, tip_id, tuple(parents), lamport, own, log.membership_heads())
