"""The calls of tools without a result, by the ids that people and programs name. Pure."""

from replica.conversation.conversation import Conversation
from replica.conversation.place import Place, goes_behind
from replica.conversation.runs import OpenCall, calls_behind, may_close, result_place
from replica.ids import PublicKey, short
from replica.log import Message, Speaker, Text, ToolResult
from replica.refusals import ArgumentInvalid, NotAllowed

ABANDONED = "abandoned"
"""The text of the error that closes a call which nobody finishes."""


def open_calls(held: Conversation) -> list[OpenCall]:
    """Return the calls without a result on all branches."""
    answered = (r for r in held.order.requests if held.order.generation_of(r) is not None)
    return [one for request in answered for one in calls_behind(held, request)[0]]


def call_to_close(
    held: Conversation, place: Place, call_id: str, author: PublicKey, *, is_error: bool
) -> OpenCall:
    """Return the open call of an id, on the branch of a place if one is there.

    A model may use an id again on another branch. Raises ArgumentInvalid, and NotAllowed where
    a result of `author` would not close it.
    """
    found = [one for one in open_calls(held) if one.call.call_id == call_id]
    if not found:
        raise ArgumentInvalid(f"no call {call_id} is open here")
    meant = [one for one in found if is_on_branch(held, place, one)] or found
    if len(meant) > 1:
        raise ArgumentInvalid(
            f"several branches have an open call {call_id}: close it on the branch that is meant"
        )
    (one,) = meant
    if not may_close(held, one, author, is_error=is_error):
        raise NotAllowed(
            f"{short(one.asked.executor)} finishes call {call_id} as its executor;"
            " its requester and owners may abandon it"
        )
    return one


def closing_result(
    held: Conversation,
    place: Place,
    call_id: str,
    author: PublicKey,
    text: str,
    *,
    is_error: bool,
) -> tuple[Message, Place]:
    """Return the message that closes an open call, and its place.

    Raises ArgumentInvalid and NotAllowed, as `call_to_close`.
    """
    call = call_to_close(held, place, call_id, author, is_error=is_error)
    result = ToolResult(call_id, (Text(text),), is_error)
    return Message(Speaker.TOOL, (result,)), result_place(held, call.request)


def is_on_branch(held: Conversation, place: Place, call: OpenCall) -> bool:
    """Say whether an entry at a place goes behind the answer that made a call."""
    order, end = held.order, goes_behind(held, place)
    asked = order.seal_of.get(call.request)
    return end is not None and asked is not None and end.extends(order.nodes[asked])
