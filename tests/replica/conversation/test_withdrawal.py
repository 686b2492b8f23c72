"""Whether a message can be withdrawn (DECISIONS D573)."""

import pytest

from replica.conversation import is_about, requests_reading, requests_to_cancel
from replica.conversation.runs import calls_behind
from replica.log.body import Cancel, Message, Speaker, Text, ToolCall, ToolResult
from replica.log.entry import Conflict
from replica.refusals import ArgumentInvalid, NotAllowed
from tests.support.turns import Turns


def test_ones_own_open_requests_about_the_message_are_cancelled_first() -> None:
    turns = Turns()
    said = turns.say(turns.writer, "oops", turns.genesis)
    first = turns.ask(turns.writer, said)
    again = turns.ask(turns.writer, said, conflict=Conflict.FORK)
    held, me = turns.held, turns.writer.public
    assert requests_to_cancel(held, said.id, me) == [first.id, again.id]
    turns.add(turns.writer, Cancel(), first)
    assert requests_to_cancel(held, said.id, me) == [again.id]
    turns.add(turns.writer, Cancel(), again)
    assert requests_to_cancel(held, said.id, me) == []


def test_a_message_that_another_open_request_follows_is_not_withdrawn() -> None:
    turns = Turns()
    said = turns.say(turns.owner, "oops", turns.genesis)
    first = turns.ask(turns.owner, said)
    behind = turns.ask(turns.owner, turns.say(turns.owner, "and?", first))
    theirs = turns.ask(turns.writer, said)
    held, me = turns.held, turns.owner.public
    assert set(requests_reading(held, said.id)) == {first.id, behind.id, theirs.id}
    assert is_about(held, first.id, said.id, me)
    assert not is_about(held, behind.id, said.id, me)
    assert not is_about(held, theirs.id, said.id, me)
    for one in (behind, theirs):
        with pytest.raises(ArgumentInvalid, match="cancel that first"):
            requests_to_cancel(held, said.id, me)
        turns.add(turns.owner, Cancel(), one)
    assert requests_to_cancel(held, said.id, me) == [first.id]


def test_a_message_that_an_answer_has_read_is_not_withdrawn() -> None:
    turns = Turns()
    said = turns.say(turns.owner, "hello", turns.genesis)
    request = turns.ask(turns.owner, said)
    answer = turns.answer(request, Text("Hi."))
    me = turns.owner.public
    with pytest.raises(ArgumentInvalid, match="in the context of an answer"):
        requests_to_cancel(turns.held, said.id, me)
    for one in (request, answer):
        with pytest.raises(ArgumentInvalid, match="is no message"):
            requests_to_cancel(turns.held, one.id, me)


def test_another_members_message_is_withdrawn_by_owners_alone() -> None:
    turns = Turns()
    said = turns.say(turns.owner, "oops", turns.genesis)
    theirs = turns.say(turns.writer, "oops", turns.genesis)
    with pytest.raises(NotAllowed):
        requests_to_cancel(turns.held, said.id, turns.writer.public)
    assert requests_to_cancel(turns.held, theirs.id, turns.owner.public) == []


def test_what_ends_a_call_is_not_withdrawn_and_a_withdrawn_result_ends_none() -> None:
    turns = Turns()
    said = turns.say(turns.owner, "Book it.", turns.genesis)
    answer = turns.answer(turns.ask(turns.owner, said), ToolCall("a", "book", "{}"))
    request = turns.held.log.entries[turns.entry(answer.header.parents[0]).header.parents[0]]
    result = Message(Speaker.TOOL, (ToolResult("a", (Text("booked"),)),))
    done = turns.add(turns.owner, result, answer)
    with pytest.raises(ArgumentInvalid, match="part of a call"):
        requests_to_cancel(turns.held, done.id, turns.owner.public)
    assert calls_behind(turns.held, request.id)[0] == ()
    turns.add(turns.owner, Cancel(), done)
    assert [one.call.call_id for one in calls_behind(turns.held, request.id)[0]] == ["a"]
