"""The place of the next entry: its parents and its basis (spec/03-order §3, ORD-10).

Pure. There are three kinds of place: the end of the branch with the latest activity,
the end of the branch of an earlier request, and right behind a given entry, which chosen.py
finds.
"""

from collections.abc import Container
from dataclasses import dataclass, replace

from replica.conversation.conversation import Conversation
from replica.ids import EntryId
from replica.log import Conflict, Entry, Kind, reach
from replica.order import (
    Ahead,
    SealNode,
    ends,
    frontier,
    is_tail_entry,
    late_messages,
    lists_answer,
    queued_behind,
)


@dataclass(frozen=True, slots=True)
class Place:
    """The parents of the next entry, and the seal whose context it extends."""

    parents: tuple[EntryId, ...]
    basis: EntryId | None
    conflict: Conflict = Conflict.QUEUE
    """The conflict rule of a request here, for a branch that has grown meanwhile."""


def newest_place(held: Conversation) -> Place:
    """Return the end of the branch with the latest activity."""
    tips = held.order.tips()
    return end_of(held, tips[-1] if tips else None)


def place_on_branch(held: Conversation, request: EntryId) -> Place:
    """Return the end of the branch that `request` was written on.

    It goes on with the earliest seal behind it, as a queued request does, so that a branch
    that somebody begins there later is not followed.
    """
    seal = held.order.seal_of.get(request)
    if seal is not None:
        return end_of(held, held.order.branch_end(held.order.nodes[seal]))
    basis = held.order.resolve_basis(held.log.entries[request])
    return Place(_ends_behind(held, request, basis), basis.id if basis is not None else None)


def place_beside(held: Conversation, seal: EntryId) -> Place:
    """Return the place of another request with the context of a sealed one: a fork."""
    node, entries = held.order.nodes[seal], held.log.entries
    answer = answer_ahead(node)
    followed = [*entries[node.seal.request].header.parents, *answer]
    parents = ends(held.log, [entries[i] for i in followed], needed=answer)
    return Place(parents, node.parent.id if node.parent is not None else None, Conflict.FORK)


def with_conflict(held: Conversation, place: Place, conflict: Conflict) -> Place:
    """Return a place with another conflict rule. A fork there waits for no answer.

    Where the seal at the place has none yet, it begins beside that, with the same context. It does
    so too where that request is closed, unless the place follows a CANCEL of it. A queued place
    follows such a CANCEL at the end of its branch.
    """
    order, entries = held.order, held.log.entries
    chosen = replace(place, conflict=conflict)
    if conflict is not Conflict.FORK:
        return _past_closed(held, chosen, ahead_of(held, chosen).node)
    node = order.nodes.get(place.basis) if place.basis is not None else None
    if node is None or node.generation is not None:
        return chosen
    reached = reach(place.parents, lambda i: entries[i].header.parents, node.covers)
    if not reached.isdisjoint(order.closing_cancels(node.seal.request)):
        return chosen
    # What the seal lists was said elsewhere, where a place is behind an older message.
    needed = (node.seal.request, *answer_ahead(node))
    found = [entries[i] for i in (*place.parents, *needed)]
    parents = ends(held.log, found, needed=needed)
    return Place(parents, node.parent.id if node.parent is not None else None, conflict)


def answer_ahead(listing: SealNode | None) -> tuple[EntryId, ...]:
    """Return the answer of the seal that one extends, if it lists that.

    A queued request need not follow it, and a fork beside that has it only by following it.
    """
    parent = listing.parent if listing is not None else None
    if listing is None or parent is None or parent.generation is None:
        return ()
    return (parent.generation,) if listing.lists_answer_of(parent) else ()


def goes_behind(held: Conversation, place: Place) -> SealNode | None:
    """Return the seal behind which an entry at a place comes: the end of its branch, or its basis.

    A turn that waits, or was closed without a seal, goes behind what others asked meanwhile,
    unless it forks.
    """
    if place.conflict == Conflict.FORK:
        return held.order.nodes.get(place.basis) if place.basis is not None else None
    return ahead_of(held, place).node


def ahead_of(held: Conversation, place: Place) -> Ahead:
    """Return the end of the branch on which an entry queued at a place goes on."""
    basis = held.order.nodes.get(place.basis) if place.basis is not None else None
    return queued_behind(held.order, place.parents, basis)


def forks_at(held: Conversation, place: Place) -> bool:
    """Say whether an entry at a place forks, or follows a request that forks and has no seal."""
    if place.conflict == Conflict.FORK:
        return True
    return ahead_of(held, place).fork is not None


def first_seal_with(held: Conversation, entry_id: EntryId) -> SealNode | None:
    """Return the earliest seal that lists an entry."""
    return held.order.listed_by.get(entry_id)


def basis_of(held: Conversation, entry: Entry) -> EntryId | None:
    """Return the seal whose context an entry extends: its basis, or the valid one before a void."""
    basis = held.order.resolve_basis(entry)
    return basis.id if basis is not None else None


def end_of(held: Conversation, tip: SealNode | None) -> Place:
    """Return the end of the branch of a tip, behind a CANCEL that closes its request if need be."""
    place = Place(frontier(held.order, tip), tip.id if tip is not None else None)
    return _past_closed(held, place, tip, held.order.unreached)


def _past_closed(
    held: Conversation, place: Place, end: SealNode | None, unreached: Container[EntryId] = ()
) -> Place:
    """Return a queued place behind `end`, following a CANCEL that closes its request.

    What comes next would wait for good without, where no answer is there that a context can have.
    """
    order, entries = held.order, held.log.entries
    closing = order.closing_cancels(end.seal.request)[:1] if end is not None else ()
    if end is None or not closing or lists_answer(held.log, order.nodes, place.parents, end):
        return place
    followed = [entries[i] for i in (*place.parents, *closing)]
    return replace(place, parents=ends(held.log, followed, unreached, closing))


def _ends_behind(
    held: Conversation, request: EntryId, basis: SealNode | None
) -> tuple[EntryId, ...]:
    """Return the ends of the tail behind `request`, with a CANCEL that closes its branch's end.

    Messages that will be late once the request is sealed are followed now. What a fork begins
    behind the request is no part of its branch.
    """
    log, order = held.log, held.order
    entries, begun_by = log.entries, order.forks.begun_by

    def is_elsewhere(entry_id: EntryId) -> bool:
        is_seal = entries[entry_id].header.kind == Kind.SEAL
        return is_seal or begun_by(entry_id) is not begun_by(request)

    unsealed = reach([request], log.children, is_elsewhere)
    found = [e for e in map(entries.__getitem__, unsealed) if is_tail_entry(log, e)]
    end = queued_behind(order, (request,), basis).node
    closing: tuple[EntryId, ...] = ()
    if end is not None and not lists_answer(log, order.nodes, unsealed, end):
        # Only an entry that follows such a CANCEL need not wait for the answer.
        closing = order.closing_cancels(end.seal.request)[:1]
    found += [entries[i] for i in closing]
    found += late_messages(order, end, unsealed)
    return ends(log, found, order.unreached, closing) or (request,)
