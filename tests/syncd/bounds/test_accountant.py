"""The memory of a hub's peers is bounded per link, per key and per hub (LIM-10)."""

from hypothesis import given
from hypothesis import strategies as st

from replica.ids import PublicKey
from syncd.bounds.accountant import Accountant

ADA, EVE, BOB = (PublicKey(bytes([n]) * 32) for n in (1, 2, 3))


def _accountant() -> Accountant:
    return Accountant(holder_max=100, key_max=150, hub_max=200)


def test_within_the_bounds_nobody_is_let_go_of() -> None:
    accountant = _accountant()
    assert not accountant.hold("a", ADA, 100)
    assert not accountant.hold("b", ADA, 50)
    assert accountant.excess() == []
    assert accountant.total == 150


def test_a_holder_beyond_its_bound_goes() -> None:
    accountant = _accountant()
    accountant.hold("b", BOB, 90)
    assert accountant.hold("a", ADA, 101)
    assert accountant.excess() == ["a"]
    assert accountant.total == 90


def test_of_a_key_beyond_its_bound_the_heaviest_holders_go() -> None:
    accountant = _accountant()
    for name, size in (("a", 40), ("b", 60), ("c", 55)):
        last = accountant.hold(name, EVE, size)
    assert last
    assert accountant.excess() == ["b"]


def test_at_the_hubs_bound_the_heaviest_key_goes_first_and_others_stay() -> None:
    accountant = _accountant()
    accountant.hold("ada", ADA, 80)
    for name in range(10):
        accountant.hold(name, EVE, 14)
    assert accountant.total == 220
    gone = accountant.excess()
    assert len(gone) == 2
    assert set(gone) <= set(range(10))


def test_what_shrinks_or_ends_occupies_nothing() -> None:
    accountant = _accountant()
    accountant.hold("a", ADA, 80)
    accountant.hold("a", ADA, 10)
    assert accountant.total == 10
    accountant.hold("a", ADA, 0)
    accountant.release("a")
    assert accountant.total == 0
    assert accountant.excess() == []


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 120))))
def test_the_bounds_hold_after_any_changes(changes: list[tuple[int, int]]) -> None:
    accountant, held = _accountant(), dict[int, int]()
    for holder, size in changes:
        key = (ADA, EVE, BOB)[holder % 3]
        is_over = accountant.hold(holder, key, size)
        held[holder] = size
        gone = accountant.excess()
        assert is_over == bool(gone)
        for one in gone:
            held[one] = 0  # type: ignore[index]  # holders are numbers here
        assert accountant.total == sum(held.values()) <= 200
        for start in range(3):
            assert sum(size for one, size in held.items() if one % 3 == start) <= 150
