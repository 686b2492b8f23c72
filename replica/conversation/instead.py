"""The place of a message that is written in place of another (DECISIONS D499).

Pure. The other one stays in the log, and nothing of it is in the context.
"""

from replica.conversation.backlog import awaited
from replica.conversation.conversation import Conversation
from replica.conversation.place import Place, answer_ahead, goes_behind
from replica.ids import EntryId
from replica.log import Conflict, Entry
from replica.order import SealNode, ends


def place_instead_of(held: Conversation, message: EntryId) -> Place:
    """Return the place where a message was, behind the answer that it was queued behind.

    While that answer is still to come, the place queues behind it.
    """
    entries = held.log.entries
    entry = entries[message]
    listing = held.order.listed_by.get(message)
    forked = listing is None and _has_forked(held, entry)
    if listing is None:
        basis = held.order.resolve_basis(entry)
        conflict = Conflict.FORK if forked else Conflict.QUEUE
        there = Place(entry.header.parents, basis.id if basis is not None else None, conflict)
        ahead = goes_behind(held, there)
    else:
        ahead = listing.parent
    followed = [*entry.header.parents, *_answer_ahead(ahead, listing)]
    parents = ends(held.log, [entries[i] for i in followed])
    place = Place(parents, ahead.id if ahead is not None else None)
    is_waiting = listing is None and not forked and awaited(held, place)
    return place if is_waiting else Place(parents, place.basis, Conflict.FORK)


def _has_forked(held: Conversation, message: Entry) -> bool:
    """Say whether an unsealed message was asked with a request that forks.

    Its first request decides, since others ask for another answer. A closed one with no request
    behind it does nothing but keep apart a message that was not asked with any.
    """
    log, order = held.log, held.order
    requests = [log.entries[i] for i in log.children(message.id) if order.request(i) is not None]
    first = min(requests, key=lambda e: e.order_key, default=None)
    if first is None or first.header.conflict != Conflict.FORK:
        return False
    closing = order.closing_cancels(first.id)
    behind = (i for one in (first.id, *closing) for i in log.children(one))
    return not closing or any(order.request(i) is not None for i in behind)


def _answer_ahead(ahead: SealNode | None, listing: SealNode | None) -> tuple[EntryId, ...]:
    """Return the answer of the seal ahead, if the message's context has it or is to have it."""
    if listing is not None:
        return answer_ahead(listing)
    return (ahead.generation,) if ahead is not None and ahead.generation is not None else ()
