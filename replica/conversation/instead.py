"""The place of a message that is written in place of another (DECISIONS D499).

Pure. The other one stays in the log, and nothing of it is in the context.
"""

from replica.conversation.backlog import awaited
from replica.conversation.conversation import Conversation
from replica.conversation.place import Place, goes_behind
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
    """Say whether the request of an unsealed message forks.

    A forking request right behind a message, with no other behind it, may keep that apart alone.
    """
    log, order = held.log, held.order

    def is_followed(request: EntryId) -> bool:
        behind = (request, *order.closing_cancels(request))
        return any(order.request(i) is not None for one in behind for i in log.children(one))

    requests = (log.entries[i] for i in log.children(message.id) if order.request(i) is not None)
    return any(
        request.header.conflict == Conflict.FORK
        and request.header.author == message.header.author
        and is_followed(request.id)
        for request in requests
    )


def _answer_ahead(ahead: SealNode | None, listing: SealNode | None) -> tuple[EntryId, ...]:
    """Return the answer of the seal ahead, if the message's context has it or is to have it."""
    if ahead is None or ahead.generation is None:
        return ()
    is_left_out = listing is not None and not listing.lists_answer_of(ahead)
    return () if is_left_out else (ahead.generation,)
