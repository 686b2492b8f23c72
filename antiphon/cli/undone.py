"""What is shown of a question that was taken back while it waited (DECISIONS D499, D573).

Pure. Its message is withdrawn, and its requests are cancelled. What asks for the last words of a
branch passes over all of it.
"""

from replica.conversation import Conversation
from replica.ids import EntryId
from replica.log import Entry, FinishReason, Generation, Kind
from replica.order import is_withdrawn

TAKEN_BACK = "taken back"


def is_taken_back(held: Conversation, request: EntryId) -> bool:
    """Say whether the question of a request was taken back before a host took or refused it."""
    log, order = held.log, held.order
    if request in order.seal_of or not order.closing_cancels(request):
        return False
    end = order.generation_of(request)
    body = log.body(end) if end is not None else None
    if isinstance(body, Generation) and body.finish_reason != FinishReason.CANCELLED:
        return False
    return any(is_withdrawn(order, i) for i in log.entries[request].header.parents)


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
