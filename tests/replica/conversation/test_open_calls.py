"""Open calls are found by their ids, on the branch of a place first."""

import pytest

from replica.conversation.open_calls import call_to_close, is_on_branch, open_calls
from replica.conversation.place import Place
from replica.log.body import FinishReason, Message, Speaker, Text, ToolCall, ToolResult
from replica.log.entry import Conflict, Entry
from replica.refusals import ArgumentInvalid, NotAllowed
from tests.support.turns import Turns

CALL = ToolCall("a", "book", "{}")


@pytest.fixture
def turns() -> Turns:
    return Turns()


def called(turns: Turns) -> tuple[Entry, Place]:
    """Let a branch end in an answer with a call; return its request and the place behind it."""
    said = turns.say(turns.owner, "Book.", turns.genesis)
    request = turns.ask(turns.owner, said, conflict=Conflict.FORK)
    answer = turns.answer(request, CALL, reason=FinishReason.TOOL_CALLS)
    return request, Place((answer.id,), turns.held.order.seal_of[request.id])


def test_the_call_on_the_branch_is_meant_where_several_have_its_id(turns: Turns) -> None:
    (first, here), (second, there) = called(turns), called(turns)
    assert [one.request for one in open_calls(turns.held)] == [first.id, second.id]
    for request, place in ((first, here), (second, there)):
        one = call_to_close(turns.held, place, "a", turns.owner.public, is_error=False)
        assert one.request == request.id
        assert [is_on_branch(turns.held, at, one) for at in (here, there)] == [
            at == place for at in (here, there)
        ]
    nowhere = Place((turns.genesis.id,), None, Conflict.FORK)
    with pytest.raises(ArgumentInvalid, match="several"):
        call_to_close(turns.held, nowhere, "a", turns.owner.public, is_error=False)


def test_a_call_is_closed_once_and_by_those_who_may(turns: Turns) -> None:
    _, place = called(turns)
    with pytest.raises(ArgumentInvalid, match="no call b"):
        call_to_close(turns.held, place, "b", turns.owner.public, is_error=False)
    with pytest.raises(NotAllowed):
        call_to_close(turns.held, place, "a", turns.writer.public, is_error=False)
    answer = turns.held.log.entries[place.parents[0]]
    part = ToolResult("a", (Text("done"),), False)
    turns.add(turns.owner, Message(Speaker.TOOL, (part,)), answer)
    with pytest.raises(ArgumentInvalid, match="no call a"):
        call_to_close(turns.held, place, "a", turns.owner.public, is_error=False)
