"""The answers that a request at a given place would wait for (spec/03-order §4).

Pure. For display only: a host decides by `next_seal.sealable`.
"""

from replica.conversation.conversation import Conversation
from replica.conversation.place import Place, goes_behind
from replica.ids import EntryId
from replica.log import Conflict, reach


def awaited(held: Conversation, place: Place) -> list[EntryId]:
    """Return the unanswered requests ahead of `place`, in (lamport, id) order.

    Closed requests are left out: those without a seal, and those whose CANCEL `place` follows.
    """
    order, log = held.order, held.log
    found: set[EntryId] = set()

    def follow(entry_id: EntryId) -> tuple[EntryId, ...]:
        if order.request(entry_id) is not None:
            if order.generation_of(entry_id) is not None:
                return ()
            found.add(entry_id)
        return log.entries[entry_id].header.parents

    behind = reach(place.parents, follow)
    if place.conflict is Conflict.QUEUE:
        end = goes_behind(held, place)
        if end is not None and end.generation is None:
            found.add(end.seal.request)

    def is_closed(request: EntryId) -> bool:
        closing = order.closing_cancels(request)
        return bool(closing) and (request not in order.seal_of or not behind.isdisjoint(closing))

    return sorted((i for i in found if not is_closed(i)), key=lambda i: log.entries[i].order_key)
