"""The answers that a request at a given place would wait for (spec/03-order §4).

Pure. For display only: a host decides by `next_seal.sealable`.
"""

from replica.conversation.conversation import Conversation
from replica.conversation.place import Place, ahead_of
from replica.ids import EntryId
from replica.log import Conflict, reach
from replica.order import Ahead, descendants, is_open, start


def awaited(held: Conversation, place: Place) -> list[EntryId]:
    """Return the unanswered requests ahead of `place`, in (lamport, id) order.

    Closed requests are left out: those without a seal, and those whose CANCEL `place` follows.
    So are those that a fork goes on without, on whose branch `place` is.
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
        ahead = ahead_of(held, place)
        found = _of_branch(held, place, ahead, found)
        end = ahead.node
        if end is not None and end.generation is None and ahead.fork is None:
            found.add(end.seal.request)

    def is_closed(request: EntryId) -> bool:
        closing = order.closing_cancels(request)
        return bool(closing) and (request not in order.seal_of or not behind.isdisjoint(closing))

    return sorted((i for i in found if not is_closed(i)), key=lambda i: log.entries[i].order_key)


def waiting_beside(held: Conversation, place: Place) -> list[EntryId]:
    """Return the requests that wait for the branch of a place without being followed there.

    They were queued before the answer came that the place follows (ORD-10), and are sealed
    behind it, in (lamport, id) order.
    """
    order, log = held.order, held.log
    tip = ahead_of(held, place).node if place.conflict is Conflict.QUEUE else None
    begin = start(order, tip)
    if tip is None or begin == tip.seal.request:
        return []
    behind = descendants(order, tip.seal.request) - descendants(order, begin)
    asked = (log.entries[i] for i in behind.difference(awaited(held, place)))
    found = [entry for entry in asked if is_open(order, entry)]
    found = [entry for entry in found if entry.header.conflict == Conflict.QUEUE]
    return [entry.id for entry in sorted(found, key=lambda entry: entry.order_key)]


def _of_branch(held: Conversation, place: Place, ahead: Ahead, found: set[EntryId]) -> set[EntryId]:
    """Leave out requests beside the branch that the last fork before a place has begun."""
    forks, order = held.order.forks, held.order
    fork = forks.behind(place.parents)
    if fork is None:
        return found
    seal = order.seal_of.get(fork.begun_by.id)
    is_there = ahead.node is not None and seal is not None and ahead.node.extends(order.nodes[seal])
    if not is_there and ahead.fork is not fork.begun_by:
        return found
    follow_it = ((i, forks.behind((i,))) for i in found)
    return {i for i, behind in follow_it if behind and behind.begun_by is fork.begun_by}
