"""The entry that the next message is said to follow."""

from antiphon.cli.views.followed import followed, followed_next
from antiphon.cli.views.rows import Row
from replica.conversation.chosen import place_at
from replica.conversation.place import newest_place, place_on_branch
from replica.log.body import Cancel, Text
from tests.antiphon.cli.test_undone import end, queued, take_back
from tests.support.turns import Turns


def test_a_question_that_was_taken_back_is_not_what_the_next_message_follows() -> None:
    turns = Turns()
    said = turns.say(turns.owner, "Hi.", turns.genesis)
    answer = turns.answer(turns.ask(turns.owner, said), Text("Hello."))
    basis = turns.entry(answer.header.parents[0])
    request = turns.ask(turns.owner, turns.say(turns.owner, "Oops.", answer), basis=basis)
    gone = take_back(turns, request)
    assert followed(turns.held, newest_place(turns.held)) == answer
    refusal = end(turns, request)
    assert followed(turns.held, newest_place(turns.held)) == answer
    assert followed(turns.held, place_at(turns.held, refusal.id)) == refusal
    note = turns.say(turns.writer, "A note.", *sorted((refusal, gone), key=lambda e: e.id))
    assert followed(turns.held, newest_place(turns.held)) == note


def test_where_nothing_else_was_said_the_genesis_is_followed() -> None:
    turns = Turns()
    request = turns.ask(turns.owner, turns.say(turns.owner, "Oops.", turns.genesis))
    take_back(turns, request)
    assert followed(turns.held, newest_place(turns.held)) == turns.genesis


def test_a_question_that_waits_is_followed() -> None:
    turns = Turns()
    request = queued(turns)
    assert followed(turns.held, place_on_branch(turns.held, request.id)) == request


def test_behind_a_cancelled_question_its_message_is_followed() -> None:
    """It was the request, or the end that its host noted, which no list shows."""
    turns = Turns()
    request = queued(turns)
    turns.add(turns.owner, Cancel(), request)
    said = turns.entry(request.header.parents[0])
    assert followed(turns.held, place_on_branch(turns.held, request.id)) == said
    end(turns, request)
    assert followed(turns.held, place_on_branch(turns.held, request.id)) == said


def test_an_entry_without_words_is_named_by_its_note() -> None:
    cut_off = Row("ab12", "model", "", "interrupted · 3 tokens")
    assert followed_next(cut_off) == "the next message follows ab12  model: (interrupted)"
    assert (
        followed_next(Row("ab12", "user", "")) == "the next message follows ab12  user: (no words)"
    )
    assert followed_next(Row("ab12", "user", "Hi  there")).endswith("user: Hi there")
