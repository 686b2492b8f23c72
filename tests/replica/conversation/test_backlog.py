"""The answers that a request from a place would wait for (spec/03-order §4)."""

from dataclasses import replace

from replica.conversation.backlog import awaited, waiting_beside
from replica.conversation.chosen import place_at
from replica.conversation.place import newest_place, place_on_branch
from replica.log.body import Cancel, Request, Sampling
from replica.log.entry import Conflict
from tests.replica.order.turn import Turn
from tests.support.stories import answer


def test_behind_an_answer_nothing_is_awaited() -> None:
    turn = Turn()
    assert awaited(turn.held, newest_place(turn.held)) == []


def test_an_unanswered_request_ahead_of_the_place_is_awaited() -> None:
    turn = Turn()
    again = turn.request(turn.answer, basis=turn.seal)
    assert awaited(turn.held, place_on_branch(turn.held, again.id)) == [again.id]
    assert awaited(turn.held, place_at(turn.held, turn.answer.id)) == []


def test_a_queued_request_waits_for_the_end_of_its_branch_wherever_it_stands() -> None:
    turn = Turn()
    again = turn.request(turn.answer, basis=turn.seal)
    turn.sealed(again, [turn.answer, again], turn.seal)
    place = replace(place_at(turn.held, turn.answer.id), conflict=Conflict.QUEUE)
    assert awaited(turn.held, place) == [again.id]
    assert awaited(turn.held, replace(place, conflict=Conflict.FORK)) == []


def test_several_are_listed_in_their_order() -> None:
    turn = Turn()
    first = turn.request(turn.answer, basis=turn.seal)
    second = turn.request(first, basis=turn.seal)
    place = place_on_branch(turn.held, second.id)
    assert awaited(turn.held, place) == [first.id, second.id]


def test_a_request_is_not_awaited_by_who_follows_the_cancel_that_closes_it() -> None:
    turn = Turn()
    again = turn.request(turn.answer, basis=turn.seal)
    turn.sealed(again, [turn.answer, again], turn.seal)
    place = place_on_branch(turn.held, again.id)
    assert awaited(turn.held, place) == [again.id]
    cancel = turn.admit(turn.ada.write(turn.held.id, Cancel(), parents=[again]))
    assert awaited(turn.held, place) == [again.id], "it does not follow the CANCEL"
    assert awaited(turn.held, replace(place, parents=(cancel.id,))) == []


def test_a_closed_request_without_a_seal_is_awaited_by_nobody() -> None:
    turn = Turn()
    again = turn.request(turn.answer, basis=turn.seal)
    place = place_on_branch(turn.held, again.id)
    turn.admit(turn.ada.write(turn.held.id, Cancel(), parents=[again]))
    assert awaited(turn.held, place) == []


def test_a_request_that_forks_does_not_wait_for_an_answer_beside_it() -> None:
    turn = Turn()
    beside = turn.request(turn.answer, basis=turn.seal)
    turn.sealed(beside, [turn.answer, beside], turn.seal)
    body = Request(turn.hal.public, Sampling())
    fork = turn.admit(
        turn.ada.write(
            turn.held.id, body, parents=[turn.answer], basis=turn.seal, conflict=Conflict.FORK
        )
    )
    assert awaited(turn.held, place_on_branch(turn.held, fork.id)) == [fork.id]


def test_what_a_fork_goes_on_without_is_not_awaited_behind_it() -> None:
    """A chat showed these answers as part of the branch."""
    turn = Turn()
    first = turn.request(turn.answer, basis=turn.seal)
    second = turn.request(first, basis=turn.seal)
    there = place_on_branch(turn.held, second.id)
    body = Request(turn.hal.public, Sampling())
    fork = turn.admit(
        turn.ada.write(
            turn.held.id, body, parents=[second], basis=turn.seal, conflict=Conflict.FORK
        )
    )
    behind = turn.request(fork, basis=turn.seal)
    place = place_on_branch(turn.held, behind.id)
    assert awaited(turn.held, place) == [fork.id, behind.id]
    assert awaited(turn.held, there) == [first.id, second.id]
    seal = turn.sealed(fork, [turn.answer, first, second, fork], turn.seal)
    assert awaited(turn.held, place) == [fork.id, behind.id]
    turn.admit(turn.hal.write(turn.held.id, answer(), parents=[seal], basis=seal))
    assert awaited(turn.held, place) == [behind.id]


def test_the_answer_that_a_fork_leaves_as_it_comes_is_not_awaited_behind_it() -> None:
    turn = Turn()
    coming = turn.request(turn.answer, basis=turn.seal)
    seal = turn.sealed(coming, [turn.answer, coming], turn.seal)
    there = place_on_branch(turn.held, coming.id)
    said = turn.say("and?", coming)
    body = Request(turn.hal.public, Sampling())
    fork = turn.admit(
        turn.ada.write(turn.held.id, body, parents=[said], basis=seal, conflict=Conflict.FORK)
    )
    assert awaited(turn.held, place_on_branch(turn.held, fork.id)) == [fork.id]
    assert awaited(turn.held, there) == [coming.id]


def test_what_was_queued_before_the_answer_came_waits_beside_who_follows_that() -> None:
    turn = Turn()
    first = turn.request(turn.answer, basis=turn.seal)
    seal = turn.sealed(first, [turn.answer, first], turn.seal)
    queued = turn.request(first, basis=turn.seal)
    there = place_on_branch(turn.held, queued.id)
    assert waiting_beside(turn.held, newest_place(turn.held)) == [], "it is followed"
    turn.admit(turn.hal.write(turn.held.id, answer(), parents=[seal], basis=seal))
    place = newest_place(turn.held)
    assert awaited(turn.held, place) == []
    assert waiting_beside(turn.held, place) == [queued.id]
    assert waiting_beside(turn.held, there) == [], "it is followed"
    assert waiting_beside(turn.held, replace(place, conflict=Conflict.FORK)) == []
    turn.admit(turn.ada.write(turn.held.id, Cancel(), parents=[queued]))
    assert waiting_beside(turn.held, newest_place(turn.held)) == []
