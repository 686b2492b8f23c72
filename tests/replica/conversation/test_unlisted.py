"""The entries before a place that no seal of its branch lists."""

from replica.conversation.place import Place, place_on_branch
from replica.conversation.unlisted import unlisted_before
from replica.log.entry import Conflict
from tests.support.branches import Scene


def test_the_answer_of_the_seal_ahead_comes_first() -> None:
    scene = Scene()
    first = scene.ask()
    meanwhile = scene.say(first)
    seal = scene.seal(first)
    answer = scene.answer(seal)
    queued = Place((meanwhile.id,), seal.id)
    assert unlisted_before(scene.held, queued) == [answer, meanwhile]
    forks = Place((meanwhile.id,), seal.id, Conflict.FORK)
    assert unlisted_before(scene.held, forks) == [meanwhile]


def test_a_branch_that_waits_has_nothing_of_those_beside_it() -> None:
    scene = Scene()
    _, base, answer = scene.turn()
    scene.turn(answer, basis=base)
    left, right = (scene.ask(answer, basis=base, fork=True) for _ in range(2))
    queued = scene.ask(left, basis=base)
    place = place_on_branch(scene.held, queued.id)
    assert unlisted_before(scene.held, place) == [answer, left, queued]
    assert right not in unlisted_before(scene.held, place)


def test_before_the_first_seal_all_that_was_said_counts() -> None:
    scene = Scene()
    request = scene.ask()
    assert unlisted_before(scene.held, Place((request.id,), None)) == [scene.hello, request]
