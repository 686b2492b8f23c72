"""Which question a request is about."""

from antiphon.cli.views.names import Names
from antiphon.cli.views.questions import (
    answered_by,
    is_cancelled,
    is_end_of_none,
    question_of,
    stands_below,
)
from antiphon.cli.views.rows import is_listed, line_of, row_of
from replica.log.body import Cancel, FinishReason, Generation, Text
from replica.log.entry import Conflict
from tests.support.turns import Turns


def test_whose_answer_comes_is_clear_below_its_question_alone() -> None:
    turns = Turns()
    mine, theirs = (
        turns.say(author, words, turns.genesis)
        for author, words in ((turns.owner, "Hi\nthere."), (turns.writer, "And I?"))
    )
    first, second = turns.ask(turns.owner, mine), turns.ask(turns.writer, theirs)
    assert stands_below(turns.held, first.id, mine.id)
    assert stands_below(turns.held, first.id, first.id)
    for above in (None, theirs.id, second.id):
        assert not stands_below(turns.held, first.id, above)
    questions = [question_of(turns.held, one.id) for one in (first, second)]
    assert questions == [mine, theirs]
    assert [line_of(turns.held, one) for one in questions] == ["Hi there.", "And I?"]


def test_a_request_without_a_message_is_about_the_question_before_it() -> None:
    turns = Turns()
    said = turns.say(turns.owner, "Hi.", turns.genesis)
    first = turns.ask(turns.owner, said)
    cut = turns.answer(first, Text("Well"), reason=FinishReason.LENGTH)
    seal = turns.entry(cut.header.parents[0])
    goes_on = turns.ask(turns.writer, cut, basis=seal)
    again = turns.ask(turns.writer, said, conflict=Conflict.FORK)
    assert answered_by(turns.held, cut) == first.id
    assert answered_by(turns.held, said) is None
    assert stands_below(turns.held, goes_on.id, first.id)
    assert not stands_below(turns.held, again.id, first.id)
    assert stands_below(turns.held, again.id, said.id)
    assert [question_of(turns.held, one.id) for one in (goes_on, again)] == [said, said]
    assert line_of(turns.held, None) == ""


def test_the_question_of_a_long_row_of_continued_answers_is_found() -> None:
    turns = Turns()
    said = turns.say(turns.owner, "Hi.", turns.genesis)
    request = turns.ask(turns.owner, said)
    for _ in range(3):
        cut = turns.answer(request, Text("Well"), reason=FinishReason.LENGTH)
        seal = turns.entry(cut.header.parents[0])
        request = turns.ask(turns.writer, cut, basis=seal)
    assert question_of(turns.held, request.id) == said


def test_a_cancelled_question_says_so_and_its_request_is_left_out() -> None:
    """A nameless "cancelled" stood below another member's answer."""
    turns = Turns()
    first = turns.ask(turns.owner, turns.say(turns.owner, "Hi.", turns.genesis))
    said = turns.say(turns.writer, "And I?", first)
    asked = turns.ask(turns.writer, said)
    assert not is_cancelled(turns.held, said)
    assert is_listed(turns.held, asked)
    turns.add(turns.writer, Cancel(), asked)
    turns.answer(first)
    assert is_cancelled(turns.held, said)
    end = turns.add(turns.host, Generation((), (), 0, FinishReason.CANCELLED), asked)
    assert row_of(turns.held, said).note == "cancelled; no answer came"
    assert is_end_of_none(turns.held, end)
    assert not is_listed(turns.held, asked)
    assert not is_listed(turns.held, end)
    turns.answer(turns.ask(turns.writer, said, conflict=Conflict.FORK))
    assert not is_cancelled(turns.held, said), "it was asked again"
    assert row_of(turns.held, said).note == ""


def test_a_request_is_shown_with_its_question_and_who_asked() -> None:
    turns = Turns()
    said = turns.say(turns.owner, "Hi\nthere.", turns.genesis)
    turns.answer(turns.ask(turns.owner, said))
    again = turns.ask(turns.writer, said, conflict=Conflict.FORK)
    host = turns.held.log.body(again.id).host
    names = Names(given={turns.owner.public: "ada", turns.writer.public: "bob", host: "up"})
    row = row_of(turns.held, again, names)
    assert (row.text, row.note) == ("ada: Hi there.", "not answered · asked by bob · host up")
    turns.add(turns.writer, Cancel(), again)
    assert is_listed(turns.held, again), "no message of its author says so"
    nothing = turns.ask(turns.writer, turns.genesis)
    row = row_of(turns.held, nothing, names)
    assert (row.text, row.note) == ("bob: (another answer)", "not answered · host up")
