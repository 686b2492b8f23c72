"""Whether a message can be withdrawn (spec/03-order §3, ORD-6; DECISIONS D573). Pure."""

from replica.conversation.conversation import Conversation
from replica.ids import EntryId, PublicKey, short
from replica.log import Kind, Message, ToolCall, ToolResult, ToolStarted, reach
from replica.order import is_open
from replica.refusals import ArgumentInvalid, NotAllowed


def requests_reading(held: Conversation, message: EntryId) -> list[EntryId]:
    """Return the open requests without a seal that follow a message, in (lamport, id) order."""
    log, order = held.log, held.order
    behind = reach([message], log.children, lambda i: log.entries[i].header.kind == Kind.SEAL)
    found = (log.entries[i] for i in behind if i in order.requests and i not in order.seal_of)
    is_read_by = sorted((e for e in found if is_open(order, e)), key=lambda e: e.order_key)
    return [entry.id for entry in is_read_by]


def requests_to_cancel(held: Conversation, message: EntryId, author: PublicKey) -> list[EntryId]:
    """Return the open requests that `author` has to cancel before withdrawing a message.

    Raises ArgumentInvalid for what is no message, one with calls or results of tools, one that a
    seal lists, and one that another open request follows; NotAllowed for that of another
    member, unless `author` is an owner.
    """
    entry, body = held.log.entries[message], held.log.body(message)
    name = short(message)
    if not isinstance(body, Message):
        raise ArgumentInvalid(f"{name} is no message of this conversation")
    if any(isinstance(part, ToolCall | ToolResult | ToolStarted) for part in body.parts):
        raise ArgumentInvalid(f"{name} is part of a call of a tool, which its result ends")
    if message in held.order.listed_by:
        raise ArgumentInvalid(f"{name} is in the context of an answer: ask beside it instead")
    if entry.header.author != author and author not in held.log.membership.owner_keys():
        raise NotAllowed(f"{name} is withdrawn by its author or by an owner")
    reading = requests_reading(held, message)
    own = [i for i in reading if is_about(held, i, message, author)]
    others = [i for i in reading if i not in own]
    if others:
        raise ArgumentInvalid(f"request {short(others[0])} follows {name}: cancel that first")
    return own


def is_about(held: Conversation, request: EntryId, message: EntryId, author: PublicKey) -> bool:
    """Say whether a request of `author` asks about a message directly."""
    header = held.log.entries[request].header
    return header.author == author and message in header.parents
