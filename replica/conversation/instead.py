"""The place of a message that is written in place of another (DECISIONS D499).

Pure. The other one stays in the log, and nothing of it is in the context.
"""

from replica.conversation.backlog import awaited
from replica.conversation.conversation import Conversation
from replica.conversation.place import Place, goes_behind
from replica.ids import EntryId
from replica.log import Conflict
from replica.order import SealNode, ends


def place_instead_of(held: Conversation, message: EntryId) -> Place:
    """Return the place where a message was, behind the answer that it was queued behind.

    While that answer is still to come, the place queues behind it.
    """
    entries = held.log.entries
    entry = entries[message]
    listing = held.order.listed_by.get(message)
    if listing is None:
        basis = held.order.resolve_basis(entry)
        there = Place(entry.header.parents, basis.id if basis is not None else None)
        ahead = goes_behind(held, there)
    else:
        ahead = listing.parent
    followed = [*entry.header.parents, *_answer_ahead(ahead, listing)]
    parents = ends(held.log, [entries[i] for i in followed])
    place = Place(parents, ahead.id if ahead is not None else None)
    is_waiting = listing is None and awaited(held, place)
    return place if is_waiting else Place(parents, place.basis, Conflict.FORK)


def _answer_ahead(ahead: SealNode | None, listing: SealNode | None) -> tuple[EntryId, ...]:
    """Return the answer of the seal ahead, if the message's context has it or is to have it."""
    if ahead is None or ahead.generation is None:
        return ()
    is_left_out = listing is not None and not listing.lists_answer_of(ahead)
    return () if is_left_out else (ahead.generation,)
