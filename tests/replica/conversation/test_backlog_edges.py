"""The answers that a request at a place waits for (spec/03-order §4)."""

import pytest

from replica.conversation.backlog import awaited, left_out, waiting_beside
from replica.conversation.next_seal import sealable
from replica.conversation.place import Place, newest_place, place_on_branch, with_conflict
from replica.log.entry import Conflict, Entry
from tests.support.branches import Scene


@pytest.fixture
def scene() -> Scene:
    return Scene()


def _queued(*parents: Entry, basis: Entry | None = None) -> Place:
    return Place(tuple(p.id for p in parents), basis.id if basis else None)


def _forked(*parents: Entry, basis: Entry | None = None) -> Place:
    return Place(tuple(p.id for p in parents), basis.id if basis else None, Conflict.FORK)


def test_an_answered_request_is_awaited_no_more_and_neither_are_those_before_it(
    scene: Scene,
) -> None:
    waits = scene.ask()
    later = scene.ask(waits)
    assert awaited(scene.held, _queued(later)) == [waits.id, later.id]
    scene.refuse(later)
    assert awaited(scene.held, _queued(later)) == []
    assert awaited(scene.held, _queued(waits)) == [waits.id]


def test_awaited_requests_are_in_the_canonical_order(scene: Scene) -> None:
    requests = [scene.ask()]
    for _ in range(9):
        requests.append(scene.ask(requests[-1]))
    assert awaited(scene.held, _queued(requests[-1])) == [entry.id for entry in requests]


def test_a_fork_does_not_await_the_unanswered_requests_that_it_follows(scene: Scene) -> None:
    """`antiphon cancel` there ended answers that the next message does not wait for."""
    waits = scene.ask()
    later = scene.ask(waits)
    assert awaited(scene.held, _forked(later)) == []
    fork = scene.ask(later, fork=True)
    scene.seal(fork)
    assert scene.held.order.seal_of.keys() == {fork.id}


def test_a_queued_request_awaits_the_answer_at_the_end_of_its_branch(scene: Scene) -> None:
    _, seal, answer = scene.turn()
    second = scene.ask(answer, basis=seal)
    second_seal = scene.seal(second)
    assert awaited(scene.held, _queued(answer, basis=seal)) == [second.id]
    assert awaited(scene.held, _forked(answer, basis=seal)) == []
    scene.answer(second_seal)
    assert awaited(scene.held, _queued(answer, basis=seal)) == []


def test_a_queued_request_awaits_nothing_of_another_branch(scene: Scene) -> None:
    _, seal, answer = scene.turn()
    left = scene.ask(answer, basis=seal, fork=True)
    right = scene.ask(scene.say(answer), basis=seal, fork=True)
    left_seal, right_seal = scene.seal(left), scene.seal(right)
    scene.answer(left_seal)
    assert awaited(scene.held, _queued(answer, basis=left_seal)) == []
    assert awaited(scene.held, _queued(answer, basis=right_seal)) == [right.id]


def test_before_the_first_seal_no_answer_is_awaited(scene: Scene) -> None:
    assert awaited(scene.held, _queued(scene.hello)) == []


def test_a_queued_request_without_a_basis_awaits_the_end_of_the_first_branch(scene: Scene) -> None:
    request = scene.ask()
    scene.seal(request)
    assert awaited(scene.held, _queued(scene.hello)) == [request.id]


def test_no_answer_is_awaited_behind_the_cancel_that_closes_its_request(scene: Scene) -> None:
    request = scene.ask()
    seal = scene.seal(request)
    cancel = scene.cancel(request)
    assert awaited(scene.held, _queued(cancel, basis=seal)) == []
    assert awaited(scene.held, _queued(request, basis=seal)) == [request.id]


def test_nothing_is_awaited_that_its_branch_has_gone_on_without(scene: Scene) -> None:
    """`status` said that its asker waits for a host that is gone, and `cancel` cancelled it."""
    first = scene.ask()
    seal = scene.seal(first)
    waits = scene.ask(scene.say(first))
    third = scene.ask(scene.cancel(first), basis=seal)
    scene.answer(scene.seal(third))
    place = place_on_branch(scene.held, waits.id)
    assert awaited(scene.held, place) == [waits.id]
    assert sealable(scene.held, waits.id) is not None


def test_a_question_whose_author_did_not_know_of_later_answers_waits_beside(scene: Scene) -> None:
    """Nobody else saw it while its host was away, though the next answer comes behind its own."""
    _, base, reply = scene.turn()
    _, seal, answered = scene.turn(reply, basis=base)
    early = scene.ask(scene.say(reply), basis=base)
    scene.ask(scene.say(reply), basis=base, fork=True)
    place = newest_place(scene.held)
    assert place == Place((answered.id,), seal.id)
    assert awaited(scene.held, place) == []
    assert waiting_beside(scene.held, place) == [early.id]
    assert waiting_beside(scene.held, with_conflict(scene.held, place, Conflict.FORK)) == []
    assert waiting_beside(scene.held, place_on_branch(scene.held, early.id)) == []
    found = sealable(scene.held, early.id)
    assert found is not None
    assert found.parent is scene.held.order.nodes[seal.id]


def test_a_fork_leaves_the_open_requests_out_that_it_follows(scene: Scene) -> None:
    waits = scene.ask()
    closed = scene.ask(waits)
    scene.cancel(closed)
    later = scene.ask(closed)
    assert left_out(scene.held, _forked(later)) == [waits.id, later.id]
    assert left_out(scene.held, _queued(later)) == []
    scene.answer(scene.seal(waits))
    assert left_out(scene.held, _forked(later)) == [later.id]
