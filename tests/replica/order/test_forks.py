"""The last forking request that an entry follows (spec/03-order §4, ORD-11)."""

from replica.log.body import Grant, Role
from replica.order.forks import Forks
from tests.support.branches import Scene
from tests.support.writers import Writer


def test_an_entry_follows_the_last_request_that_forks_among_its_ancestors() -> None:
    scene = Scene()
    first = scene.ask(fork=True)
    word = scene.say(first)
    second = scene.ask(word, fork=True)
    queued = scene.ask(scene.hello)
    both = scene.say(second, queued)
    forks = scene.held.order.forks
    assert forks.last([scene.hello.id, queued.id]) is None
    assert forks.last([word.id, queued.id]) == first
    assert forks.last([both.id]) == second
    assert forks.last([first.id]) == first


def test_of_two_requests_at_one_lamport_the_one_with_the_higher_id_is_the_last() -> None:
    scene = Scene()
    twins = [scene.ask(fork=True), scene.ask(fork=True)]
    last = max(twins, key=lambda e: e.order_key)
    for parents in (twins, twins[::-1]):
        assert scene.held.order.forks.last([e.id for e in parents]) == last


def test_entries_without_a_forking_request_behind_them_are_not_kept() -> None:
    scene = Scene()
    scene.turn()
    forks = Forks()
    for entry in scene.held.log.entries.values():
        forks.add(entry)
    assert not forks._last


def test_entries_of_other_tracks_are_ignored() -> None:
    scene = Scene()
    forking = scene.ask(fork=True)
    grant = scene.member(Grant(Writer(7).public, Role.WRITER), scene.grant)
    assert scene.held.order.forks.last([grant.id]) is None
    assert scene.held.order.forks.last([forking.id, grant.id]) == forking


def test_what_is_covered_no_longer_is_forgotten() -> None:
    scene = Scene()
    forking = scene.ask(fork=True)
    forks = scene.held.order.forks
    forks.drop(forking.id)
    assert forks.last([forking.id]) is None
