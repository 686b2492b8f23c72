"""Entries of the log become events."""

from dataclasses import replace

import pytest

from antiphon.cli.views.rows import row_of
from antiphon.library import events as e
from antiphon.library.news import answer_of, call_before, events_of, history_of
from replica.conversation.place import newest_place
from replica.conversation.runs import retry_place
from replica.log.body import (
    Cancel,
    FinishReason,
    Message,
    Revocation,
    Speaker,
    Text,
    ToolCall,
    ToolResult,
    ToolStarted,
)
from replica.log.entry import Conflict, Entry
from tests.support.turns import Turns

CALL = ToolCall("a", "book", "{}")


@pytest.fixture
def turns() -> Turns:
    return Turns()


def events(turns: Turns, *entries: Entry) -> list[e.Event]:
    return list(events_of(turns.held, entries, turns.owner.public))


def kinds(turns: Turns, *entries: Entry) -> list[str]:
    return [type(event).__name__ for event in events(turns, *entries)]


def test_a_turn_is_said_asked_sealed_and_answered(turns: Turns):
    said = turns.say(turns.owner, "Hi.", turns.genesis)
    request = turns.ask(turns.owner, said)
    assert answer_of(turns.held, request.id) is None
    answer = turns.answer(request, Text("Yes."))
    seal = turns.entry(answer.header.parents[0])
    found = events(turns, said, request, seal, answer)
    assert found == [
        e.Said(turns.owner.public, "Hi.", said.id, turns.held.id),
        e.Asked(turns.owner.public, request.id, turns.held.id),
        e.Sealed(request.id, seal.id, turns.held.id),
        e.Answered(answer_of(turns.held, request.id), turns.held.id),  # type: ignore[arg-type]
    ]


def test_words_of_a_removed_key_stay_in_the_history_where_the_model_has_read_them(turns: Turns):
    first = turns.answer(turns.ask(turns.owner, turns.say(turns.owner, "Hi.", turns.genesis)))
    said = turns.say(turns.writer, "The writer asks.", first)
    answer = turns.answer(turns.ask(turns.writer, said), Text("Yes."))
    unread = turns.say(turns.writer, "Not read.", answer)
    turns.change(Revocation(turns.writer.public))  # it covers nothing of the writer's
    assert not turns.held.log.membership.is_visible(said)
    found = list(history_of(turns.held, newest_place(turns.held), turns.owner.public))
    words = [one.text if isinstance(one, e.Said) else one.answer.text for one in found]  # type: ignore[union-attr]
    assert words == ["Hi.", "", "The writer asks.", "Yes."]
    assert row_of(turns.held, said).note.endswith("the model has read it")
    assert row_of(turns.held, unread).note.startswith("void")


def test_a_message_is_withdrawn_once_and_only_while_no_answer_has_read_it(turns: Turns):
    said, other = (turns.say(turns.owner, text, turns.genesis) for text in ("Hi.", "Oops."))
    foreign = turns.add(turns.writer, Cancel(), other)
    gone, again = (turns.add(turns.owner, Cancel(), other) for _ in range(2))
    withdrawn = e.Withdrawn(turns.owner.public, other.id, gone.id, turns.held.id)
    assert events(turns, foreign, gone, again) == [withdrawn]
    request = turns.ask(turns.owner, said)
    turns.answer(request, Text("Yes."))
    assert events(turns, *(turns.add(turns.owner, Cancel(), one) for one in (said, request))) == []


def test_a_system_text_is_told_from_what_a_person_said(turns: Turns):
    text = turns.add(turns.owner, Message(Speaker.SYSTEM, (Text("Be brief."),)), turns.genesis)
    said = turns.say(turns.owner, "Hi.", text)
    assert [(one.text, one.is_system) for one in events(turns, text, said)] == [  # type: ignore[union-attr]
        ("Be brief.", True), ("Hi.", False)
    ]  # fmt: skip


@pytest.mark.parametrize("reason", [0, 99])
def test_an_answer_that_ended_for_an_unknown_reason_is_one(turns: Turns, reason: int):
    said = turns.say(turns.owner, "Hi.", turns.genesis)
    answer = turns.answer(turns.ask(turns.owner, said), Text("Yes."), reason=reason)
    (found,) = events(turns, answer)
    assert isinstance(found, e.Answered)
    assert (found.answer.text, found.answer.finish) == ("Yes.", FinishReason.UNSPECIFIED)


def test_calls_starts_and_results_name_the_call(turns: Turns):
    said = turns.say(turns.owner, "Hi.", turns.genesis)
    answer = turns.answer(turns.ask(turns.owner, said), CALL, reason=FinishReason.TOOL_CALLS)
    start = turns.add(turns.owner, Message(Speaker.TOOL, (ToolStarted("a", "key"),)), answer)
    result = ToolResult("a", (Text("done"),))
    done = turns.add(turns.owner, Message(Speaker.TOOL, (result,)), answer)
    call = e.Call("a", "book", "{}")
    assert events(turns, answer)[0] == e.ToolCalled(call, answer.id, turns.held.id)
    assert events(turns, start, done) == [
        e.ToolStarted(call, "key", start.id, turns.held.id),
        e.ToolDone(call, "done", False, done.id, turns.held.id),
    ]
    assert call_before(turns.held, done, "unknown") == e.Call("unknown", "")


def test_a_result_that_closes_nothing_has_no_event(turns: Turns):
    said = turns.say(turns.owner, "Hi.", turns.genesis)
    answer = turns.answer(turns.ask(turns.owner, said), CALL, reason=FinishReason.TOOL_CALLS)
    forged = Message(Speaker.TOOL, (ToolResult("a", (Text("forged"),)),))
    abandoned = Message(Speaker.TOOL, (ToolResult("a", (Text("abandoned"),), is_error=True),))
    assert kinds(turns, turns.add(turns.writer, forged, answer)) == []
    assert kinds(turns, turns.add(turns.writer, abandoned, answer)) == []
    assert kinds(turns, turns.add(turns.owner, abandoned, answer)) == ["ToolDone"]


def test_a_call_of_anyone_but_the_executor_has_no_event(turns: Turns):
    said = turns.say(turns.owner, "Hi.", turns.genesis)
    answer = turns.answer(turns.ask(turns.owner, said), CALL, reason=FinishReason.TOOL_CALLS)
    forged = Message(
        Speaker.ASSISTANT, (Text("Hi."), replace(CALL, name="pay"), ToolCall("b", "f", "{}"))
    )
    other = turns.add(turns.writer, forged, answer)
    assert kinds(turns, other) == ["Said"]
    shown = history_of(turns.held, newest_place(turns.held), turns.owner.public)
    assert [one.call.id for one in shown if isinstance(one, e.ToolCalled)] == ["a"]
    own = turns.add(turns.owner, Message(Speaker.ASSISTANT, (ToolCall("c", "book", "{}"),)), other)
    assert kinds(turns, own) == ["ToolCalled"]
    result = turns.add(turns.owner, Message(Speaker.TOOL, (ToolResult("a", ()),)), own)
    assert call_before(turns.held, result, "a") == e.Call("a", "book", "{}")
    assert call_before(turns.held, result, "b") == e.Call("b", "")
    assert call_before(turns.held, result, "c").name == "book"


def test_a_call_before_any_request_has_no_event(turns: Turns):
    called = Message(Speaker.ASSISTANT, (Text("Hi."), CALL))
    assert kinds(turns, turns.add(turns.owner, called, turns.genesis)) == ["Said"]


def test_the_executor_of_a_call_is_that_of_the_last_request_that_counts(turns: Turns):
    first = turns.ask(turns.owner, turns.say(turns.owner, "Hi.", turns.genesis))
    answer = turns.answer(first, Text("Yes."))
    second = turns.ask(turns.writer, answer, basis=turns.entry(answer.header.parents[0]))
    called = Message(Speaker.ASSISTANT, (CALL,))
    mine, theirs = (turns.add(one, called, second) for one in (turns.owner, turns.writer))
    assert (kinds(turns, mine), kinds(turns, theirs)) == ([], ["ToolCalled"])
    turns.change(Revocation(turns.writer.public))  # its request is void
    assert (kinds(turns, mine), kinds(turns, theirs)) == (["ToolCalled"], [])


def test_a_refusal_has_its_reason(turns: Turns):
    said = turns.say(turns.owner, "Hi.", turns.genesis)
    answer = turns.answer(turns.ask(turns.owner, said), reason=FinishReason.REFUSED)
    assert kinds(turns, answer) == ["Refused"]


def test_a_second_branch_is_announced_from_the_readers_side(turns: Turns):
    said = turns.say(turns.owner, "Hi.", turns.genesis)
    request = turns.ask(turns.owner, said)
    first = turns.entry(turns.answer(request, Text("Yes.")).header.parents[0])
    place = retry_place(turns.held, request.id)
    again = turns.ask(turns.writer, turns.entry(place.parents[0]), conflict=Conflict.FORK)
    second = turns.entry(turns.answer(again, Text("No.")).header.parents[0])
    forked = e.Forked(first.id, second.id, turns.held.id)
    assert events(turns, second)[-1] == forked
    seen_by_writer = list(events_of(turns.held, [second], turns.writer.public))
    assert seen_by_writer[-1] == e.Forked(second.id, first.id, turns.held.id)


def test_void_entries_have_no_events_and_members_have(turns: Turns):
    said = turns.say(turns.writer, "Hi.", turns.genesis)
    out = turns.change(Revocation(turns.writer.public))
    assert events(turns, said) == []
    assert events(turns, out) == [e.MemberChanged(turns.writer.public, None, turns.held.id)]


def test_a_device_that_wrote_two_histories_is_named(turns: Turns):
    twin = turns.writer.restored()
    turns.say(turns.writer, "One.", turns.genesis)
    other = turns.say(twin, "Other.", turns.genesis)
    assert kinds(turns, other) == ["Said", "Diverged"]
