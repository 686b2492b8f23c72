"""The answers that a request at a given place would wait for (spec/03-order §4).

Pure. For display and CANCELs only: a host decides by `next_seal.sealable`.
"""

from collections.abc import Callable

from replica.conversation.conversation import Conversation
from replica.conversation.place import Place, ahead_of, goes_behind
from replica.ids import EntryId
from replica.log import Conflict, Entry, reach
from replica.order import (
    SealNode,
    begun_behind,
    is_open,
    lists_answer,
    queued_behind,
)


def awaited(held: Conversation, place: Place) -> list[EntryId]:
    """Return the unanswered requests that one at `place` waits for, in (lamport, id) order.

    These are the ones ahead of it on its branch, none for a fork, and that of the seal which it
    extends, also where its answer is void. Closed requests are left out: those without a seal,
    and those whose CANCEL `place` follows.
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
    end = goes_behind(held, place)
    if place.conflict is Conflict.QUEUE:
        # Nothing waits for a sealed one that its branch has gone on without.
        goes_there, unsealed = _goes_with(held, place, end), found.difference(order.seal_of)
        found = {i for i in unsealed if goes_there(log.entries[i])}
    else:
        found = set()  # a fork gets its seal beside the unanswered requests that it follows
    if end is not None and not _has_answer(held, place, end):
        found.add(end.seal.request)

    def is_closed(request: EntryId) -> bool:
        closing = order.closing_cancels(request)
        return bool(closing) and (request not in order.seal_of or not behind.isdisjoint(closing))

    return sorted((i for i in found if not is_closed(i)), key=lambda i: log.entries[i].order_key)


def answers_ahead(held: Conversation, place: Place) -> list[EntryId]:
    """Return the awaited requests whose answers come into the context at `place`.

    A fork behind a seal waits for the answer of that, and goes on without it.
    """
    end, found = goes_behind(held, place), awaited(held, place)
    if end is None or place.conflict is Conflict.FORK:
        return found
    fork = _begun(held, place, end)
    is_left = fork is not None and is_open(held.order, fork)
    return [i for i in found if not is_left or i != end.seal.request]


def left_out(held: Conversation, place: Place) -> list[EntryId]:
    """Return the open requests that a fork at `place` follows, and whose answers it leaves out.

    They are in (lamport, id) order. A place that queues leaves none out.
    """
    order, entries = held.order, held.log.entries
    if place.conflict is not Conflict.FORK:
        return []
    behind = reach(place.parents, lambda i: entries[i].header.parents)
    found = (entries[i] for i in behind if i in order.unanswered)
    return [e.id for e in sorted(found, key=lambda e: e.order_key) if is_open(order, e)]


def waiting_beside(held: Conversation, place: Place) -> list[EntryId]:
    """Return the requests that wait for the branch of a place without being followed there.

    They were queued before the answer came that the place follows, or where its author did not
    know of that, and are sealed behind it, in (lamport, id) order.
    """
    order, entries = held.order, held.log.entries
    if place.conflict is not Conflict.QUEUE:
        return []
    asked = [entries[i] for i in reversed([*order.unanswered.latest_unsealed()])]
    queued = [e for e in asked if e.header.conflict == Conflict.QUEUE and is_open(order, e)]
    if not queued:
        return []
    followed = {*awaited(held, place)}
    goes_there = _goes_with(held, place, ahead_of(held, place).node)
    return [e.id for e in queued if e.id not in followed and goes_there(e)]


def _goes_with(held: Conversation, place: Place, end: SealNode | None) -> Callable[[Entry], bool]:
    """Return whether a request without a seal goes behind `end`, as what is queued at `place`."""
    order, begun = held.order, _begun(held, place, end)
    found = dict[tuple[EntryId | None, EntryId | None], SealNode | None]()

    def goes_there(request: Entry) -> bool:
        if request.header.conflict == Conflict.FORK:
            return begun is request
        parents, extended = request.header.parents, order.resolve_basis(request)
        fork = order.forks.behind(parents)
        # Many may wait in one line, whose end is looked for once.
        line = (extended.id if extended is not None else None, fork.last.id if fork else None)
        if line not in found:
            found[line] = queued_behind(order, parents, extended).node
        if found[line] is not end:
            return False
        return begun_behind(order, parents, extended, end) is begun

    return goes_there


def _has_answer(held: Conversation, place: Place, end: SealNode) -> bool:
    """Say whether nothing waits for the answer of a seal any more. A void one is none to queue."""
    if place.conflict is Conflict.FORK:
        return end.generation is not None
    return lists_answer(held.log, held.order.nodes, place.parents, end)


def _begun(held: Conversation, place: Place, end: SealNode | None) -> Entry | None:
    """Return the forking request that begins the branch at a place right behind `end`."""
    basis = held.order.nodes.get(place.basis) if place.basis is not None else None
    return begun_behind(held.order, place.parents, basis, end)
