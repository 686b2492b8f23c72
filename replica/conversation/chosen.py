"""The place right behind an entry that somebody chose (spec/03-order §3). Pure."""

from replica.conversation.backlog import awaited
from replica.conversation.conversation import Conversation
from replica.conversation.place import (
    Place,
    answer_ahead,
    basis_of,
    first_seal_with,
    with_conflict,
)
from replica.conversation.runs import queued_place
from replica.ids import EntryId, Track
from replica.log import Conflict, Entry, Kind
from replica.order import ends, is_open, is_withdrawn, start
from replica.refusals import ArgumentInvalid


def place_at(held: Conversation, entry_id: EntryId) -> Place:
    """Return the place right behind one entry: a fork, even if other entries follow it.

    Behind one that a seal lists it also follows the answer that this seal begins with. Behind a
    question that is queued and waits it queues: the answer ahead of that is not there to follow.
    Raises ArgumentInvalid for an entry that none can follow, and for a withdrawn message.
    """
    entry = held.log.entries[entry_id]
    if entry.header.kind == Kind.GENESIS:
        return Place((entry_id,), None, Conflict.FORK)
    if entry.header.track != Track.CONVERSATION:
        raise ArgumentInvalid("only entries of the conversation track can be followed")
    if entry.header.kind == Kind.SEAL:
        node = held.order.nodes.get(entry_id)
        if node is None:
            raise ArgumentInvalid("this seal is void, and only a valid one can be followed")
        return with_conflict(held, Place((start(held.order, node),), entry_id), Conflict.FORK)
    if is_withdrawn(held.order, entry_id):
        raise ArgumentInvalid("this message was withdrawn; let the next one follow another entry")
    listing = None if entry.header.kind == Kind.GENERATION else first_seal_with(held, entry_id)
    followed = [entry, *(held.log.entries[i] for i in answer_ahead(listing))]
    conflict = Conflict.QUEUE if _waits(held, entry) else Conflict.FORK
    place = Place(ends(held.log, followed), _basis_behind(held, entry))
    return with_conflict(held, place, conflict)


def _waits(held: Conversation, entry: Entry) -> bool:
    """Say whether an entry is an open request behind another one, or is asked with one."""
    order, entries = held.order, held.log.entries
    asked = (entry, *(entries[i] for i in held.log.children(entry.id)))
    found = (e for e in asked if e.id in order.requests and is_open(order, e))
    places = filter(None, (queued_place(held, e.id) for e in found))
    return any(awaited(held, place) for place in places)


def _basis_behind(held: Conversation, entry: Entry) -> EntryId | None:
    """Return the newest seal a successor of `entry` may extend."""
    answered = held.order.nodes.get(entry.header.parents[0])
    if entry.header.kind == Kind.GENERATION and answered is not None:
        return answered.id
    listing = first_seal_with(held, entry.id)
    if listing is not None:
        return listing.parent.id if listing.parent is not None else None
    return basis_of(held, entry)
