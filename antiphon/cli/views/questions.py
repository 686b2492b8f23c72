"""Which question a request is about, and whose answer comes below what was printed last. Pure."""

from replica.conversation import Conversation
from replica.ids import EntryId
from replica.log import Entry, FinishReason, Generation, Kind, Message

ANOTHER = "(another answer)"
"""In place of a question, where there is none."""
CANCELLED = "cancelled; no answer came"


def question_of(held: Conversation, request: EntryId) -> Entry | None:
    """Return the message that a request is about, None if there is none.

    It is its author's, else another's before it. That of a request that goes on with an answer
    is the question of that answer.
    """
    asked = held.log.entries[request]
    while (own := own_message(held, asked)) is None:
        parents = [held.log.entries[i] for i in asked.header.parents]
        message = next((p for p in parents if isinstance(held.log.body(p.id), Message)), None)
        answered = next(filter(None, (answered_by(held, parent) for parent in parents)), None)
        if message is not None or answered is None:
            return message
        asked = held.log.entries[answered]
    return own


def own_message(held: Conversation, request: Entry) -> Entry | None:
    """Return the message with which a request was written, None if there is none."""
    for parent in map(held.log.entries.__getitem__, request.header.parents):
        is_own = parent.header.author == request.header.author
        if is_own and isinstance(held.log.body(parent.id), Message):
            return parent
    return None


def is_cancelled(held: Conversation, message: Entry) -> bool:
    """Say whether all that the author of a message asked for was cancelled before its turn."""
    entries = (held.log.entries[i] for i in held.log.children(message.id))
    asked = [
        entry.id
        for entry in entries
        if held.order.request(entry.id) is not None and own_message(held, entry) is message
    ]
    return bool(asked) and all(is_never_answered(held, request) for request in asked)


def is_never_answered(held: Conversation, request: EntryId) -> bool:
    """Say whether a request was cancelled before its turn came."""
    return held.order.is_cancelled(request) and request not in held.order.seal_of


def is_end_of_none(held: Conversation, entry: Entry) -> bool:
    """Say whether a host notes here that a cancelled request has no answer."""
    body = held.log.body(entry.id)
    is_end = isinstance(body, Generation) and body.finish_reason == FinishReason.CANCELLED
    return is_end and held.order.request(entry.header.parents[0]) is not None


def stands_below(held: Conversation, request: EntryId, above: EntryId | None) -> bool:
    """Say whether it is clear whose answer comes if `above` was printed last.

    That is a message, or the request of an answer: of this one, or of the one it goes on with.
    """
    parents = held.log.entries[request].header.parents
    goes_on_with = (answered_by(held, held.log.entries[i]) for i in parents)
    return above is not None and above in (request, *parents, *goes_on_with)


def answered_by(held: Conversation, entry: Entry) -> EntryId | None:
    """Return the request that an entry answers; None if it is no answer."""
    if entry.header.kind != Kind.GENERATION:
        return None
    behind = entry.header.parents[0]
    node = held.order.nodes.get(behind)
    if node is not None:
        return node.seal.request
    return behind if held.order.request(behind) is not None else None
