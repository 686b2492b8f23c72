"""The meter of a log: work is counted, and pauses where it may."""

import pytest

from replica.log.meter import TURN_UNITS, Meter


def test_counted_work_is_charged_and_turns_are_not() -> None:
    meter = Meter()
    meter.count(3)
    meter.turn(100)
    assert list(meter.turns("abc")) == ["a", "b", "c"]
    assert meter.counted == 3


def test_work_pauses_after_some_entries_where_it_may_and_nowhere_else() -> None:
    meter, pauses = Meter(), list[bool]()
    meter.pause = lambda: pauses.append(meter.is_paused)
    meter.count(10 * TURN_UNITS)
    assert not meter.may_pause
    with meter:
        assert meter.may_pause
        for _ in range(3 * TURN_UNITS):
            meter.turn()
    assert pauses == [True] * 3
    assert not meter.is_paused
    meter.count(TURN_UNITS)
    assert len(pauses) == 3


def test_a_pause_that_is_cut_off_ends() -> None:
    def cut_off() -> None:
        raise KeyError

    meter = Meter()
    meter.pause = cut_off
    with pytest.raises(KeyError), meter:
        meter.turn(TURN_UNITS)
    assert not meter.is_paused
    assert not meter.may_pause


@pytest.mark.parametrize("count", [0, 5, 20_000])
def test_long_lists_are_sorted_with_turns(count: int) -> None:
    meter, pauses = Meter(), list[int]()
    meter.pause = lambda: pauses.append(1)
    items = [(7 * n) % 1_009 for n in range(count)]
    with meter:
        assert meter.sorted(items, lambda n: -n) == sorted(items, key=lambda n: -n)
    assert len(pauses) >= count // TURN_UNITS // 2
