"""The place of a message that is written in place of another (DECISIONS D499, D573).

Pure. The other one stays in the log, and nothing of it is in the context.
"""

from replica.conversation.backlog import awaited
from replica.conversation.conversation import Conversation
from replica.conversation.place import (
    Place,
    answer_ahead,
    end_of,
    goes_behind,
    place_on_branch,
    with_conflict,
)
from replica.ids import EntryId
from replica.log import Conflict, Entry
from replica.order import SealNode, ends


def place_instead_of(held: Conversation, message: EntryId) -> Place:
    """Return the place where a message was, behind the answer that it was queued behind.

    It is a fork beside a message that a seal lists, or that was asked with a request that forks.
    Any other was withdrawn, and its place is the end of its branch.
    """
    entry = held.log.entries[message]
    listing = held.order.listed_by.get(message)
    if listing is not None:
        return _beside(held, entry, listing.parent, answer_ahead(listing))
    basis = held.order.resolve_basis(entry)
    there = Place(entry.header.parents, basis.id if basis is not None else None)
    if _has_forked(held, entry):
        answer = basis.generation if basis is not None else None
        return _beside(held, entry, basis, (answer,) if answer is not None else ())
    waiting = awaited(held, there)
    return place_on_branch(held, waiting[-1]) if waiting else end_of(held, goes_behind(held, there))


def _beside(
    held: Conversation, entry: Entry, ahead: SealNode | None, answer: tuple[EntryId, ...]
) -> Place:
    followed = [*entry.header.parents, *answer]
    parents = ends(held.log, [held.log.entries[i] for i in followed])
    place = Place(parents, ahead.id if ahead is not None else None)
    return with_conflict(held, place, Conflict.FORK)


def _has_forked(held: Conversation, message: Entry) -> bool:
    """Say whether an unsealed message was asked with a request that forks.

    Its first request decides, since others ask for another answer.
    """
    log, order = held.log, held.order
    requests = [log.entries[i] for i in log.children(message.id) if order.request(i) is not None]
    first = min(requests, key=lambda e: e.order_key, default=None)
    return first is not None and first.header.conflict == Conflict.FORK
