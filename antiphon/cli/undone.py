"""What is shown of a question that was taken back while it waited (DECISIONS D499, D567).

Pure. Its request is cancelled, and behind it stands a forking request, cancelled too, that keeps
the question out of later contexts. Nobody asks anything with the latter, so it is not shown. What
asks for the last words of a branch passes over all of it.
"""

from replica.conversation import Conversation
from replica.ids import EntryId
from replica.log import Conflict, Entry, FinishReason, Generation, Kind

TAKEN_BACK = "the question was taken back"


def is_taken_back(held: Conversation, request: EntryId) -> bool:
    """Say whether the question of a request was taken back before a host took or refused it."""
    log, order = held.log, held.order
    if request in order.seal_of or not order.closing_cancels(request):
        return False
    end = order.generation_of(request)
    body = log.body(end) if end is not None else None
    if isinstance(body, Generation) and body.finish_reason != FinishReason.CANCELLED:
        return False
    behind = [request, *order.closing_cancels(request)]
    followers = (i for one in behind for i in log.children(one))
    return any(_kept_apart(held, log.entries[i]) == request for i in followers)


def is_of_undo_alone(held: Conversation, entry: Entry) -> bool:
    """Say whether an entry is a request that keeps a question apart, or the end of such a one."""
    if entry.header.kind == Kind.GENERATION:
        asked = held.log.entries[entry.header.parents[0]]
        return asked.header.kind == Kind.REQUEST and _kept_apart(held, asked) is not None
    return _kept_apart(held, entry) is not None


def is_undone(held: Conversation, entry: Entry) -> bool:
    """Say whether an entry is part of a question that was taken back.

    It is its message until a seal lists that, its request, what keeps it apart, and their ends.
    """
    log = held.log
    kind = entry.header.kind
    if kind == Kind.MESSAGE:
        asked = [i for i in log.children(entry.id) if held.order.request(i) is not None]
        own = [i for i in asked if log.entries[i].header.author == entry.header.author]
        is_listed = entry.id in held.order.listed_by
        return not is_listed and bool(own) and all(is_taken_back(held, i) for i in asked)
    if kind in (Kind.CANCEL, Kind.GENERATION):
        entry = log.entries[entry.header.parents[0]]
    if entry.header.kind != Kind.REQUEST:
        return False
    return is_taken_back(held, entry.id) or _kept_apart(held, entry) is not None


def _kept_apart(held: Conversation, entry: Entry) -> EntryId | None:
    """Return the request whose question an entry keeps apart; None if it is no such request."""
    log, order, header = held.log, held.order, entry.header
    if header.conflict != Conflict.FORK or order.request(entry.id) is None:
        return None
    if entry.id in order.seal_of or not order.closing_cancels(entry.id):
        return None
    before = log.entries[header.parents[0]]
    if before.header.kind == Kind.CANCEL:
        before = log.entries[before.header.parents[0]]
    is_own = before.header.kind == Kind.REQUEST and before.header.author == header.author
    is_closed = is_own and (order.closing_cancels(before.id) or before.id in order.refusal_of)
    return before.id if is_closed else None
