"""Where the next entry goes: its parents and its basis (spec/03-order §3)."""

import pytest

from replica.conversation.chosen import place_at
from replica.conversation.next_seal import sealable
from replica.conversation.place import (
    Place,
    first_seal_with,
    forks_at,
    goes_behind,
    newest_place,
    place_beside,
    place_on_branch,
    with_conflict,
)
from replica.limits import PARENTS_MAX
from replica.log.body import Cancel, Request, Sampling
from replica.log.entry import Conflict
from replica.refusals import ArgumentInvalid
from tests.replica.order.turn import Turn
from tests.support.branches import Scene
from tests.support.writers import said


def test_the_newest_place_follows_the_answer_and_what_was_said_since() -> None:
    turn = Turn()
    assert newest_place(turn.held) == Place((turn.answer.id,), turn.seal.id)
    more = turn.say("and?", turn.answer)
    assert newest_place(turn.held) == Place((more.id,), turn.seal.id)


def test_the_newest_place_is_on_the_branch_with_the_latest_activity() -> None:
    turn = Turn()
    left = turn.request(turn.answer, basis=turn.seal)
    seal = turn.sealed(left, [turn.answer, left], turn.seal)
    right = turn.admit(
        turn.ada.write(
            turn.held.id,
            Request(turn.hal.public, Sampling()),
            parents=[turn.answer],
            basis=turn.seal,
            conflict=Conflict.FORK,
        )
    )
    other = turn.sealed(right, [turn.answer, right], turn.seal)
    assert newest_place(turn.held).basis == other.id
    assert place_on_branch(turn.held, left.id).basis == seal.id
    # Nor does a later fork move the place of who went neither way yet.
    assert place_on_branch(turn.held, turn.ask.id).basis == seal.id


def test_a_place_on_the_branch_of_a_sealed_request_is_at_the_end_of_that_branch() -> None:
    turn = Turn()
    again = turn.request(turn.answer, basis=turn.seal)
    seal = turn.sealed(again, [turn.answer, again], turn.seal)
    assert place_on_branch(turn.held, turn.ask.id) == Place((again.id,), seal.id)


def test_a_place_on_the_branch_of_an_unsealed_request_follows_what_was_said_behind_it() -> None:
    turn = Turn()
    again = turn.request(turn.answer, basis=turn.seal)
    assert place_on_branch(turn.held, again.id) == Place((again.id,), turn.seal.id)
    more = turn.say("oh, and", again)
    assert place_on_branch(turn.held, again.id) == Place((more.id,), turn.seal.id)


def test_behind_a_closed_request_the_place_follows_its_cancel() -> None:
    turn = Turn()
    again = turn.request(turn.answer, basis=turn.seal)
    turn.sealed(again, [turn.answer, again], turn.seal)
    cancel = turn.admit(turn.ada.write(turn.held.id, Cancel(), parents=[again]))
    third = turn.request(turn.say("then", again), basis=turn.seal)
    assert cancel.id in place_on_branch(turn.held, third.id).parents


def test_a_place_at_the_genesis_has_no_basis() -> None:
    turn = Turn()
    assert place_at(turn.held, turn.genesis.id) == Place((turn.genesis.id,), None, Conflict.FORK)


def test_a_place_at_a_message_extends_what_it_was_said_to() -> None:
    turn = Turn()
    assert place_at(turn.held, turn.hello.id) == Place((turn.hello.id,), None, Conflict.FORK)
    more = turn.say("and?", turn.answer)
    again = turn.request(more, basis=turn.seal)
    turn.sealed(again, [turn.answer, more, again], turn.seal)
    assert place_at(turn.held, more.id) == Place((more.id,), turn.seal.id, Conflict.FORK)


def test_a_place_at_an_answer_or_its_seal_extends_that_seal() -> None:
    turn = Turn()
    wanted = Place((turn.answer.id,), turn.seal.id, Conflict.FORK)
    assert place_at(turn.held, turn.answer.id) == wanted
    assert place_at(turn.held, turn.seal.id) == wanted


def test_a_place_at_an_unsealed_entry_extends_the_basis_it_names() -> None:
    turn = Turn()
    words, parents = said("and?"), [turn.answer]
    more = turn.admit(turn.ada.write(turn.held.id, words, parents=parents, basis=turn.seal))
    assert place_at(turn.held, more.id) == Place((more.id,), turn.seal.id, Conflict.FORK)


def test_nothing_follows_a_member_or_a_void_seal() -> None:
    turn = Turn()
    (grant,) = turn.held.log.membership_heads()
    with pytest.raises(ArgumentInvalid, match="conversation track"):
        place_at(turn.held, grant)
    void = turn.sealed(turn.ask, [turn.hello])
    with pytest.raises(ArgumentInvalid, match="void"):
        place_at(turn.held, void.id)


def test_the_earliest_seal_that_lists_an_entry_is_found() -> None:
    turn = Turn()
    node = first_seal_with(turn.held, turn.hello.id)
    assert node is not None
    assert node.id == turn.seal.id
    assert first_seal_with(turn.held, turn.answer.id) is None


def test_a_turn_that_waits_goes_behind_the_end_of_its_branch_unless_it_forks() -> None:
    turn = Turn()
    waits = turn.request(turn.answer, basis=turn.seal)
    body = Request(turn.hal.public, Sampling())
    more = {"parents": [turn.answer], "basis": turn.seal, "conflict": Conflict.FORK}
    forks = turn.admit(turn.ada.write(turn.held.id, body, **more))
    first = turn.request(turn.answer, basis=turn.seal)
    ahead = turn.sealed(first, [turn.answer, first], turn.seal)
    places = [place_on_branch(turn.held, one.id) for one in (waits, forks)]
    assert [place.basis for place in places] == [turn.seal.id] * 2
    found = [goes_behind(turn.held, place) for place in places]
    assert [node.id for node in found if node is not None] == [ahead.id, turn.seal.id]


def test_a_turn_that_waits_behind_a_fork_goes_behind_its_basis_then_behind_its_seal() -> None:
    scene = Scene()
    _, base, answer = scene.turn()
    scene.turn(answer, basis=base)
    fork = scene.ask(answer, basis=base, fork=True)
    queued = scene.ask(fork, basis=base)
    nodes = scene.held.order.nodes
    for request in (fork, queued):
        place = place_on_branch(scene.held, request.id)
        assert place == Place((queued.id,), base.id)
        assert goes_behind(scene.held, place) is nodes[base.id]
        assert forks_at(scene.held, place)
    seal = scene.seal(fork)
    place = place_on_branch(scene.held, queued.id)
    assert place == Place((queued.id,), base.id)
    assert goes_behind(scene.held, place) is nodes[seal.id]
    assert not forks_at(scene.held, place)


def test_a_turn_that_forks_does_not_follow_the_cancel_of_a_turn_beside_it() -> None:
    """The question that was undone was shown in a chat with the one that came instead."""
    turn = Turn()
    undone = turn.request(turn.answer, basis=turn.seal)
    turn.sealed(undone, [turn.answer, undone], turn.seal)
    turn.admit(turn.ada.write(turn.held.id, Cancel(), parents=[undone], basis=turn.seal))
    body = Request(turn.hal.public, Sampling())
    more = {"parents": [turn.answer], "basis": turn.seal, "conflict": Conflict.FORK}
    instead = turn.admit(turn.ada.write(turn.held.id, body, **more))
    assert place_on_branch(turn.held, instead.id) == Place((instead.id,), turn.seal.id)


def test_behind_a_message_that_was_queued_comes_also_the_answer_it_was_queued_behind() -> None:
    turn = Turn()
    message = turn.say("and?", turn.ask)
    request = turn.request(message, basis=turn.seal)
    seal = turn.sealed(request, [turn.answer, message, request], turn.seal)
    both = tuple(sorted((message.id, turn.answer.id)))
    assert place_at(turn.held, message.id) == Place(both, turn.seal.id, Conflict.FORK)
    assert place_beside(turn.held, seal.id) == Place(both, turn.seal.id, Conflict.FORK)
    first = Place((turn.hello.id,), None, Conflict.FORK)
    assert place_at(turn.held, turn.hello.id) == place_beside(turn.held, turn.seal.id) == first


def test_a_fork_beside_an_answer_that_is_not_there_waits_for_none() -> None:
    """`antiphon send --conflict fork` waited for the answer that it was to go on without."""
    scene = Scene()
    first = scene.ask()
    base = scene.seal(first)
    queued = scene.ask(scene.say(first), basis=base)
    answer = scene.answer(base)
    coming = scene.seal(queued)
    place = newest_place(scene.held)
    assert place == Place((queued.id,), coming.id)
    assert with_conflict(scene.held, place, Conflict.QUEUE) == place
    beside = with_conflict(scene.held, place, Conflict.FORK)
    both = tuple(sorted((queued.id, answer.id)))
    assert beside == place_at(scene.held, coming.id) == Place(both, base.id, Conflict.FORK)
    fork = scene.ask(queued, answer, basis=base, fork=True)
    found = sealable(scene.held, fork.id)
    assert found is not None
    listed = scene.held.order.nodes[coming.id].seal.entries
    assert set(listed) < set(found.entries)
    behind = with_conflict(scene.held, Place((scene.cancel(queued).id,), coming.id), Conflict.FORK)
    assert behind.basis == coming.id, "nobody waits there"
    scene.answer(coming)
    assert with_conflict(scene.held, newest_place(scene.held), Conflict.FORK).basis == coming.id


def test_a_fork_beside_the_first_answer_has_no_basis() -> None:
    scene = Scene()
    first = scene.ask()
    scene.seal(first)
    beside = with_conflict(scene.held, newest_place(scene.held), Conflict.FORK)
    assert beside == Place((first.id,), None, Conflict.FORK)


def test_a_fork_keeps_the_answer_before_it_beside_more_ends_than_an_entry_names() -> None:
    scene = Scene()
    first = scene.ask()
    base = scene.seal(first)
    queued = scene.ask(scene.say(first), basis=base)
    answer = scene.answer(base)
    scene.seal(queued)
    for _ in range(PARENTS_MAX + 1):
        scene.say(queued)
    beside = with_conflict(scene.held, newest_place(scene.held), Conflict.FORK)
    assert len(beside.parents) == PARENTS_MAX
    assert answer.id in beside.parents
