"""Holds and pins: held chains stay, and idle ones go from their ends, the oldest first."""

import pytest

from model_host.kv.lookup import chain
from tests.model_host.kv.indexed import A, B, E, Indexed


def test_chains_are_evicted_from_their_end() -> None:
    given = Indexed()
    nodes = chain(given.add(A, 1100))
    assert [given.index.evict_oldest() for _ in nodes] == nodes[::-1]
    assert len(given.index) == len(given.index.users.conversations) == 0
    given.index.check_integrity()


def test_the_least_recently_used_end_goes_first() -> None:
    given = Indexed()
    one, other = given.add(A, 600), given.add(B, 600, E)
    given.index.holds.hold(one)
    given.index.holds.release(one)
    evicted = [given.index.evict_oldest() for _ in range(4)]
    assert evicted == [other, other.parent, one, one.parent]


def test_a_parent_is_evicted_in_the_order_of_its_own_use() -> None:
    given = Indexed()
    end = given.add(A, 600)
    given.add(B, 300, E)
    given.index.holds.hold(end.parent)
    given.index.holds.release(end.parent)
    evicted = [given.index.evict_oldest() for _ in range(3)]
    assert evicted[0] is end
    assert evicted[2] is end.parent


def test_held_chains_are_never_counted_as_free() -> None:
    given = Indexed()
    end, other = given.add(A, 1100), given.add(B, 700, E)
    assert given.index.holds.idle_slabs == 5
    assert given.index.holds.idle_groups == 8 + 8 + 2 + 8 + 3
    given.index.holds.hold(end)
    assert (given.index.holds.idle_slabs, given.index.holds.idle_groups) == (2, 11)
    assert [given.index.evict_oldest() for _ in range(2)] == [other, other.parent]
    with pytest.raises(IndexError):
        given.index.evict_oldest()


def test_the_queue_of_evictions_stays_small() -> None:
    given = Indexed()
    end = given.add(A, 100)
    for _ in range(1000):
        given.index.holds.hold(end)
        given.index.holds.release(end)
    assert len(given.index.holds._queue) <= 70
    given.index.check_integrity()


# --- pins -----------------------------------------------------------------------------


def test_pins_hold_a_chain_and_count_each_slab_once() -> None:
    given = Indexed()
    end = given.add(A, 1100)
    user = given.index.users.conversations[A]
    given.index.holds.pin(user, end, 5.0)
    given.index.holds.pin(user, end, 3.0)
    assert given.index.holds.pins == {(user, end): 5.0}
    assert (given.index.holds.pinned_slabs, given.index.holds.idle_slabs) == (3, 0)
    given.index.holds.pin(user, chain(end)[1], 9.0)
    assert given.index.holds.pinned_slabs == 3
    given.index.check_integrity()
    given.index.holds.unpin(user, end)
    assert (given.index.holds.pinned_slabs, given.index.holds.idle_slabs) == (2, 1)
    given.index.forget(user)
    assert (given.index.holds.pinned_slabs, len(given.index.holds.pins)) == (0, 0)
