"""What is shown of a question that was taken back while it waited (DECISIONS D499, D573).

Pure. Its message is withdrawn, and its requests are cancelled, or were refused. What asks for
the last words of a branch passes over all of it.
"""

from replica.conversation import Conversation
from replica.ids import EntryId
from replica.log import Entry, Kind
from replica.order import is_open, is_withdrawn

TAKEN_BACK = "taken back"


def is_taken_back(held: Conversation, request: EntryId) -> bool:
    """Say whether the question of a request was taken back, also after a host refused it."""
    order, entries = held.order, held.log.entries
    if request in order.seal_of or is_open(order, entries[request]):
        return False
    return any(is_withdrawn(order, i) for i in entries[request].header.parents)


def is_undone(held: Conversation, entry: Entry) -> bool:
    """Say whether an entry is part of a question that was taken back.

    It is its message, unless somebody still waits for an answer to it, its requests, and their
    ends.
    """
    log, order = held.log, held.order
    if entry.header.kind in (Kind.CANCEL, Kind.GENERATION):
        entry = log.entries[entry.header.parents[0]]
    if entry.header.kind == Kind.REQUEST:
        return is_taken_back(held, entry.id)
    asked = [i for i in log.children(entry.id) if order.request(i) is not None]
    return is_withdrawn(order, entry.id) and all(is_taken_back(held, i) for i in asked)
