"""The line that says whose answer is under way."""

import pytest

from antiphon.cli.views.branch_view import queue_words, view_of
from antiphon.cli.views.names import Names
from antiphon.cli.views.rows import entries_at
from replica.conversation.instead import place_instead_of
from replica.conversation.place import newest_place, place_on_branch
from replica.log.body import Cancel, Revocation, Text, ToolCall
from tests.replica.order.turn import Turn
from tests.support.stories import cut_at
from tests.support.turns import Turns


def test_who_waits_is_said_with_the_right_verb() -> None:
    turn = Turn()
    again = turn.request(turn.answer, basis=turn.seal)
    view = view_of(turn.held, place_on_branch(turn.held, again.id))
    asker = again.header.author
    assert queue_words(turn.held, view, Names(own=asker)) == "you wait"
    assert queue_words(turn.held, view, Names(given={asker: "bob"})) == "bob waits"


def test_the_tool_that_is_waited_for_is_named() -> None:
    turns = Turns()
    asked = turns.ask(turns.owner, turns.say(turns.owner, "Book.", turns.genesis))
    answer = turns.answer(asked, ToolCall("1", "book\x1b", "{}"))
    seal = answer.header.parents[0]
    after = turns.ask(turns.writer, answer, basis=turns.entry(seal))
    view = view_of(turns.held, place_on_branch(turns.held, after.id))
    names = Names(own=turns.owner.public, given={turns.writer.public: "bob"})
    assert queue_words(turns.held, view, names) == "bob waits for your tool book␛"
    names = Names(own=turns.writer.public, given={turns.owner.public: "ada"})
    assert queue_words(turns.held, view, names) == "you wait for the tool book␛ of ada"


@pytest.mark.parametrize("is_sealed", [False, True])
def test_nobody_is_being_answered_by_a_host_that_was_removed(is_sealed: bool) -> None:
    turns = Turns()
    asked = turns.ask(turns.owner, turns.say(turns.owner, "Hi.", turns.genesis))
    seals = [turns.seal(asked)] if is_sealed else []
    names = Names(own=turns.owner.public)
    view = view_of(turns.held, place_on_branch(turns.held, asked.id))
    assert queue_words(turns.held, view, names) == ("answering you" if is_sealed else "you wait")
    turns.change(Revocation(turns.host.public, tuple(map(cut_at, seals))), *seals)
    view = view_of(turns.held, place_on_branch(turns.held, asked.id))
    assert queue_words(turns.held, view, names) == "you wait for a host that was removed"


@pytest.mark.parametrize("is_sealed", [False, True])
def test_nobody_is_being_answered_by_a_host_that_left_the_hub(is_sealed: bool) -> None:
    turns = Turns()
    asked = turns.ask(turns.owner, turns.say(turns.owner, "Hi.", turns.genesis))
    if is_sealed:
        turns.seal(asked)
    names = Names(own=turns.owner.public)
    view = view_of(turns.held, place_on_branch(turns.held, asked.id))
    there, gone = (queue_words(turns.held, view, names, one) for one in ([turns.host.public], []))
    assert there == ("answering you" if is_sealed else "you wait")
    assert gone == "you wait for a host that is not linked to the hub"


def test_only_turns_that_wait_for_an_answer_are_next() -> None:
    turns = Turns()
    first = turns.ask(turns.owner, turns.say(turns.owner, "Hi.", turns.genesis))
    taken_back = turns.ask(turns.writer, turns.say(turns.writer, "Taken back.", first))
    turns.add(turns.writer, Cancel(), taken_back)
    note = turns.say(turns.owner, "A note.", taken_back)
    asked = turns.ask(turns.writer, turns.say(turns.writer, "What\nnow?", note))
    again = turns.ask(turns.writer, asked)
    view = view_of(turns.held, place_on_branch(turns.held, again.id))
    assert view.running == first.id
    assert [one.words for one in view.next] == ["What now?", ""]
    assert queue_words(turns.held, view, Names(own=turns.owner.public)).endswith("and 1 more")


def test_the_words_that_a_closed_turn_goes_behind_are_shown() -> None:
    turns = Turns()
    first = turns.answer(turns.ask(turns.owner, turns.say(turns.owner, "Hi.", turns.genesis)))
    seal = turns.entry(first.header.parents[0])
    mine = turns.ask(turns.owner, turns.say(turns.owner, "Offline.", first), basis=seal)
    turns.add(turns.owner, Cancel(), mine)
    theirs = turns.ask(turns.writer, turns.say(turns.writer, "Meanwhile.", first), basis=seal)
    answer = turns.answer(theirs, Text("An answer."))
    shown = [entry.id for entry in entries_at(turns.held, place_on_branch(turns.held, mine.id))]
    assert shown.index(answer.id) < shown.index(mine.id)
    assert theirs.id in shown


def test_an_answer_is_shown_though_what_was_asked_before_it_came_was_cancelled() -> None:
    turns = Turns()
    asked = turns.ask(turns.owner, turns.say(turns.owner, "Hi.", turns.genesis))
    answer = turns.answer(asked, Text("An answer."))
    seal = turns.entry(answer.header.parents[0])
    queued = turns.ask(turns.owner, turns.say(turns.owner, "And?", asked), basis=seal)
    turns.add(turns.owner, Cancel(), queued)
    for place in (place_on_branch(turns.held, queued.id), newest_place(turns.held)):
        shown = [entry.id for entry in entries_at(turns.held, place)]
        assert shown.count(answer.id) == 1
        assert shown.index(answer.id) < shown.index(queued.id)


def test_a_cancelled_question_is_under_way_only_where_the_branch_holds_it() -> None:
    """After `/cancel` and `/undo` the new question counted as being cancelled."""
    turns = Turns()
    said = turns.say(turns.owner, "X.", turns.genesis)
    cancelled = turns.ask(turns.owner, said)
    turns.add(turns.owner, Cancel(), cancelled)
    there = place_on_branch(turns.held, cancelled.id)
    assert view_of(turns.held, there, ending=[cancelled.id]).running == cancelled.id
    turns.add(turns.owner, Cancel(), said)
    place = place_instead_of(turns.held, said.id)
    assert view_of(turns.held, place, ending=[cancelled.id]).running is None
    parents = map(turns.entry, place.parents)
    instead = turns.say(turns.owner, "Y.", *parents)
    live = turns.ask(turns.owner, instead, conflict=place.conflict)
    view = view_of(turns.held, place_on_branch(turns.held, live.id), ending=[cancelled.id])
    assert view.running == live.id
    assert view.waiting == (live.id,)
