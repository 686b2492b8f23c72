"""The answers that a request from a place would wait for (spec/03-order §4)."""

from dataclasses import replace

import pytest

from replica.conversation.backlog import answers_ahead, awaited, waiting_beside
from replica.conversation.chosen import place_at
from replica.conversation.conversation import Conversation
from replica.conversation.next_seal import sealable
from replica.conversation.place import Place, newest_place, place_on_branch
from replica.ids import EntryId
from replica.log.body import Cancel, Grant, Member, Request, Revocation, Role, Sampling
from replica.log.entry import Conflict, Entry
from replica.order.eligible import is_open
from tests.convergence.unruly import Deep
from tests.replica.order.turn import Turn
from tests.support.branches import Scene
from tests.support.stories import Story, answer, cut_at
from tests.support.writers import Writer


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
    turn.sealed(first, [turn.answer, first], turn.seal)
    seal = turn.sealed(fork, [turn.answer, first, second, fork], turn.seal)
    assert awaited(turn.held, place) == [fork.id, behind.id]
    turn.admit(turn.hal.write(turn.held.id, answer(), parents=[seal], basis=seal))
    assert awaited(turn.held, place) == [behind.id]


def test_a_fork_waits_for_the_answer_of_its_basis_and_goes_on_without_it() -> None:
    """`antiphon cancel` named the fork alone, and the next message still waited."""
    turn = Turn()
    coming = turn.request(turn.answer, basis=turn.seal)
    seal = turn.sealed(coming, [turn.answer, coming], turn.seal)
    there = place_on_branch(turn.held, coming.id)
    said = turn.say("and?", coming)
    body = Request(turn.hal.public, Sampling())
    fork = turn.admit(
        turn.ada.write(turn.held.id, body, parents=[said], basis=seal, conflict=Conflict.FORK)
    )
    place = place_on_branch(turn.held, fork.id)
    assert sealable(turn.held, fork.id) is None
    assert awaited(turn.held, place) == [coming.id, fork.id]
    assert answers_ahead(turn.held, place) == [fork.id]
    assert awaited(turn.held, there) == answers_ahead(turn.held, there) == [coming.id]
    beside = replace(place, conflict=Conflict.FORK)
    assert awaited(turn.held, beside) == answers_ahead(turn.held, beside) == [coming.id]
    turn.admit(turn.ada.write(turn.held.id, Cancel(), parents=[fork]))
    place = place_on_branch(turn.held, fork.id)
    assert awaited(turn.held, place) == answers_ahead(turn.held, place) == [coming.id]


def test_a_fork_that_somebody_begins_behind_a_request_is_no_part_of_its_branch() -> None:
    """`antiphon cancel` of who asked cancelled the fork, and not what was asked."""
    turn = Turn()
    mine = turn.request(turn.answer, basis=turn.seal)
    more = {"basis": turn.seal, "conflict": Conflict.FORK}
    body = Request(turn.hal.public, Sampling())
    fork = turn.admit(turn.ada.write(turn.held.id, body, parents=[mine], **more))
    turn.say("and?", fork)
    place = place_on_branch(turn.held, mine.id)
    assert place.parents == (mine.id,)
    assert awaited(turn.held, place) == [mine.id]


def test_behind_a_cancelled_fork_nothing_of_what_it_left_is_awaited() -> None:
    turn = Turn()
    first = turn.request(turn.answer, basis=turn.seal)
    more = {"basis": turn.seal, "conflict": Conflict.FORK}
    body = Request(turn.hal.public, Sampling())
    fork = turn.admit(turn.ada.write(turn.held.id, body, parents=[first], **more))
    turn.admit(turn.ada.write(turn.held.id, Cancel(), parents=[fork]))
    place = place_on_branch(turn.held, fork.id)
    assert awaited(turn.held, place) == []
    behind = turn.request(fork, basis=turn.seal)
    turn.sealed(first, [turn.answer, first], turn.seal)
    assert sealable(turn.held, behind.id) is not None


def test_what_is_queued_goes_behind_a_fork_that_has_its_seal_first() -> None:
    turn = Turn()
    first = turn.request(turn.answer, basis=turn.seal)
    more = {"basis": turn.seal, "conflict": Conflict.FORK}
    body = Request(turn.hal.public, Sampling())
    fork = turn.admit(turn.ada.write(turn.held.id, body, parents=[first], **more))
    turn.sealed(fork, [turn.answer, first, fork], turn.seal)
    assert sealable(turn.held, first.id) is None
    assert awaited(turn.held, place_on_branch(turn.held, fork.id)) == [first.id, fork.id]


def test_of_requests_that_fork_from_one_answer_each_has_a_branch_of_its_own() -> None:
    turn = Turn()
    more = {"basis": turn.seal, "conflict": Conflict.FORK}
    body = Request(turn.hal.public, Sampling())
    parents, forks = [turn.answer], list[Entry]()
    for _ in range(3):
        forks.append(turn.admit(turn.ada.write(turn.held.id, body, parents=parents, **more)))
        parents = [forks[-1]]
    for fork in forks:
        assert awaited(turn.held, place_on_branch(turn.held, fork.id)) == [fork.id]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("kind", [Story, Deep])
def test_behind_the_cancels_of_what_a_place_awaits_nothing_waits(
    kind: type[Story], seed: int
) -> None:
    story = kind(seed)
    story.grow(50)
    held, order = story.held, story.held.order
    owner = Writer(1, epoch=5000)
    hosts = [one.public for one in story.hosts if held.log.membership.is_host(one.public)]
    if not hosts or not held.log.membership.is_owner(owner.public):
        return
    asked = [i for i in order.requests if is_open(order, held.log.entries[i])]
    for request in [None, *asked]:
        place = _place(held, request)
        for one in awaited(held, place):
            story.add(owner.write(held.id, Cancel(), parents=story.at(one)))
        place = _place(held, request)
        assert awaited(held, place) == []
        basis = story.at(place.basis)[0] if place.basis is not None else None
        body, parents = Request(hosts[0], Sampling()), story.at(*place.parents)
        queued = story.add(owner.write(held.id, body, parents=parents, basis=basis))
        assert sealable(held, queued.id) is not None
        story.add(owner.write(held.id, Cancel(), parents=[queued]))


def _place(held: Conversation, request: EntryId | None) -> Place:
    return newest_place(held) if request is None else place_on_branch(held, request)


def test_an_answer_that_a_removal_made_void_is_awaited_until_its_request_is_cancelled() -> None:
    """Somebody had gone on behind it: all that was queued next waited, and nothing said why."""
    scene, bob, ida = Scene(), Writer(3), Writer(4)
    granted = scene.member(Grant(bob.public, Role.WRITER), scene.grant)
    granted = scene.member(Grant(ida.public, Role.HOST), granted)
    asked = scene.ask()
    seal = scene.seal(asked)
    behind = scene.say(scene.answer(seal), by=bob)
    removal = Member(Revocation(scene.hal.public, (cut_at(seal),)))
    scene.add(scene.ada.write(scene.held.id, removal, parents=[granted], listed=[seal]))
    place = newest_place(scene.held)
    assert place == Place((behind.id,), seal.id)
    assert sealable(scene.held, scene.ask(behind, basis=seal, host=ida).id) is None
    assert awaited(scene.held, place) == [asked.id]
    cancel = scene.cancel(asked)
    place = newest_place(scene.held)
    assert cancel.id in place.parents
    parents = map(scene.held.log.entries.__getitem__, place.parents)
    assert sealable(scene.held, scene.ask(*parents, basis=seal, host=ida).id) is not None


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
