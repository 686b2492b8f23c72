"""The place of the next entry: ends of branches, and forks (spec/03-order §3, ORD-10)."""

import pytest

from replica.conversation.chosen import place_at
from replica.conversation.place import Place, first_seal_with, newest_place, place_on_branch
from replica.log.entry import Conflict, Entry
from replica.refusals import ArgumentInvalid
from tests.support.branches import Scene
from tests.support.stories import answer


@pytest.fixture
def scene() -> Scene:
    return Scene()


def _end(reply: Entry, seal: Entry) -> Place:
    return Place((reply.id,), seal.id)


# --- ends of branches -------------------------------------------------------------


def test_before_the_first_seal_the_newest_place_follows_all_that_was_written(scene: Scene) -> None:
    beside = scene.say(scene.genesis)
    expected = tuple(sorted([scene.hello.id, beside.id]))
    assert newest_place(scene.held) == Place(expected, None, Conflict.QUEUE)


def test_the_newest_place_is_the_end_of_the_branch_with_the_latest_activity(scene: Scene) -> None:
    _, first_seal, first_answer = scene.turn()
    left = scene.ask(first_answer, basis=first_seal, fork=True)
    _, right_seal, right_answer = scene.turn(first_answer, basis=first_seal, fork=True)
    assert newest_place(scene.held) == _end(right_answer, right_seal)
    left_seal = scene.seal(left)
    left_answer = scene.answer(left_seal)
    assert newest_place(scene.held) == _end(left_answer, left_seal)


def test_the_place_on_the_branch_of_a_sealed_request_is_the_end_of_its_earliest_seals(
    scene: Scene,
) -> None:
    first, first_seal, first_answer = scene.turn()
    left, left_seal, left_answer = scene.turn(first_answer, basis=first_seal, fork=True)
    right, right_seal, right_answer = scene.turn(first_answer, basis=first_seal, fork=True)
    assert place_on_branch(scene.held, first.id) == _end(left_answer, left_seal)
    assert place_on_branch(scene.held, left.id) == _end(left_answer, left_seal)
    assert place_on_branch(scene.held, right.id) == _end(right_answer, right_seal)


def test_behind_an_unsealed_request_the_next_entry_follows_its_tail(scene: Scene) -> None:
    _, seal, reply = scene.turn()
    request = scene.ask(reply, basis=seal)
    assert place_on_branch(scene.held, request.id) == Place((request.id,), seal.id)
    more = scene.say(request)
    beside = scene.say(reply)
    both = tuple(sorted((more.id, beside.id)))
    assert place_on_branch(scene.held, request.id) == Place(both, seal.id)


def test_behind_an_unsealed_request_without_a_basis_there_is_none(scene: Scene) -> None:
    request = scene.ask()
    assert place_on_branch(scene.held, request.id) == Place((request.id,), None)


def test_the_tail_of_an_unsealed_request_ends_at_a_void_seal(scene: Scene) -> None:
    request = scene.ask()
    scene.answer(scene.void_seal(request))
    assert place_on_branch(scene.held, request.id).parents == (request.id,)


def test_a_request_on_a_void_basis_goes_on_from_the_valid_seal_before_it(scene: Scene) -> None:
    request = scene.ask()
    void = scene.void_seal(request)
    behind = scene.ask(request, basis=void)
    assert place_on_branch(scene.held, behind.id).basis is None


def test_a_request_that_waits_behind_a_closed_one_follows_its_cancel(scene: Scene) -> None:
    first = scene.ask()
    seal = scene.seal(first)
    waits = scene.ask(first, basis=seal)
    cancel, _ = scene.cancel(first), scene.cancel(first)
    expected = tuple(sorted([waits.id, cancel.id]))
    assert place_on_branch(scene.held, waits.id) == Place(expected, seal.id)


def test_a_request_behind_an_answered_one_follows_no_cancel_of_it(scene: Scene) -> None:
    first = scene.ask()
    seal = scene.seal(first)
    waits = scene.ask(first, basis=seal)
    scene.cancel(first)
    scene.answer(seal)
    assert place_on_branch(scene.held, waits.id) == Place((waits.id,), seal.id)


# --- right behind one entry --------------------------------------------------------


def test_a_place_behind_the_genesis_is_a_fork_without_a_basis(scene: Scene) -> None:
    scene.turn()
    expected = Place((scene.genesis.id,), None, Conflict.FORK)
    assert place_at(scene.held, scene.genesis.id) == expected


def test_a_place_behind_a_listed_entry_extends_the_seal_before_the_one_that_lists_it(
    scene: Scene,
) -> None:
    first, first_seal, first_answer = scene.turn()
    word = scene.say(first_answer)
    second, _, _ = scene.turn(word, basis=first_seal)
    for entry, basis in ((first, None), (word, first_seal.id), (second, first_seal.id)):
        assert place_at(scene.held, entry.id) == Place((entry.id,), basis, Conflict.FORK)


def test_a_place_behind_an_answer_extends_the_answered_seal(scene: Scene) -> None:
    _, first_seal, first_answer = scene.turn()
    scene.turn(first_answer, basis=first_seal)
    expected = Place((first_answer.id,), first_seal.id, Conflict.FORK)
    assert place_at(scene.held, first_answer.id) == expected


def test_an_answer_extends_the_seal_it_follows_whatever_its_basis_says(scene: Scene) -> None:
    seal = scene.seal(scene.ask())
    bare = scene.add(scene.hal.write(scene.held.id, answer(), parents=[seal]))
    assert place_at(scene.held, bare.id) == Place((bare.id,), seal.id, Conflict.FORK)


def test_a_place_behind_a_refusal_extends_the_basis_of_the_refusal(scene: Scene) -> None:
    request = scene.ask()
    refusal = scene.refuse(request)
    assert scene.held.order.refusal_of == {request.id: refusal.id}
    assert place_at(scene.held, refusal.id) == Place((refusal.id,), None, Conflict.FORK)


def test_a_place_behind_an_unsealed_entry_has_its_basis(scene: Scene) -> None:
    _, seal, reply = scene.turn()
    request = scene.ask(reply, basis=seal)
    assert place_at(scene.held, request.id) == Place((request.id,), seal.id, Conflict.FORK)


def test_a_place_behind_a_seal_follows_its_answer_if_there_is_one(scene: Scene) -> None:
    request = scene.ask()
    seal = scene.seal(request)
    assert place_at(scene.held, seal.id) == Place((request.id,), None, Conflict.FORK)
    reply = scene.answer(seal)
    assert place_at(scene.held, seal.id) == Place((reply.id,), seal.id, Conflict.FORK)


def test_no_place_is_behind_a_void_seal_or_an_entry_of_another_track(scene: Scene) -> None:
    void = scene.void_seal(scene.ask())
    for entry in (void, scene.grant):
        with pytest.raises(ArgumentInvalid):
            place_at(scene.held, entry.id)


def test_of_the_seals_that_list_an_entry_the_earliest_is_its_first(scene: Scene) -> None:
    first, seal, _ = scene.turn()
    _, other, _ = scene.turn(scene.hello, fork=True)
    listing = [scene.held.order.nodes[entry.id] for entry in (seal, other)]
    assert all(scene.hello.id in node.seal.entries for node in listing)
    earliest = min(seal, other, key=lambda entry: entry.order_key)
    assert first_seal_with(scene.held, scene.hello.id) is scene.held.order.nodes[earliest.id]
    assert first_seal_with(scene.held, first.id) is listing[0]
    assert first_seal_with(scene.held, scene.genesis.id) is None
