"""The forks that entries follow (spec/03-order §4, ORD-11)."""

from replica.log.entry import Entry
from replica.order.forks import Fork, Forks
from tests.support.branches import Scene


def behind(scene: Scene, *parents: Entry) -> Fork | None:
    """Return the fork that an entry with these parents follows."""
    return scene.held.order.forks.behind([e.id for e in parents])


def test_an_entry_follows_the_last_fork_among_its_ancestors() -> None:
    scene = Scene()
    first = scene.ask(fork=True)
    word = scene.say(first)
    second = scene.ask(word, fork=True)
    queued = scene.ask(scene.hello)
    both = scene.say(second, queued)
    assert behind(scene, scene.hello, queued) is None
    assert behind(scene, word, queued) == Fork(first, first)
    assert behind(scene, both) == Fork(second, second)
    assert behind(scene, first, second) == Fork(second, second)


def test_the_last_request_behind_the_fork_is_known() -> None:
    scene = Scene()
    fork = scene.ask(fork=True)
    queued = scene.ask(scene.say(fork))
    beside = scene.ask(scene.hello)
    assert behind(scene, scene.say(queued), beside) == Fork(fork, queued)
    further = scene.ask(queued)
    assert behind(scene, queued, further) == Fork(fork, further)
    again = scene.ask(further, fork=True)
    assert behind(scene, further, again) == Fork(again, again)


def test_of_two_requests_at_one_lamport_the_one_with_the_higher_id_is_the_last() -> None:
    scene = Scene()
    twins = [scene.ask(fork=True), scene.ask(fork=True)]
    last = max(twins, key=lambda e: e.order_key)
    for parents in (twins, twins[::-1]):
        assert behind(scene, *parents) == Fork(last, last)


def test_entries_without_a_fork_behind_them_are_not_kept() -> None:
    scene = Scene()
    scene.turn()
    forks = Forks()
    for entry in scene.held.log.entries.values():
        forks.add(entry)
    assert not forks._behind


def test_what_is_covered_no_longer_is_forgotten() -> None:
    scene = Scene()
    forking = scene.ask(fork=True)
    scene.held.order.forks.drop(forking.id)
    assert behind(scene, forking) is None
