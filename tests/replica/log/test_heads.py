"""Heads that are moved entry by entry are those found by a pass over all lanes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.log.cover import Changes
from replica.log.digest import digest_of
from replica.log.entry import Entry
from replica.log.heads import Heads
from replica.log.meter import Meter
from tests.replica.log.test_lanes import histories
from tests.support.call_count import calls
from tests.support.writers import Writer, said


@given(histories(), st.integers(0, 14))
def test_heads_are_the_entries_that_none_follows_in_its_lane(came: list[Entry], cut: int) -> None:
    changes = Changes()
    heads = Heads({entry.id: entry for entry in came}, changes, Meter())
    changes.steps += [(entry.id, True) for entry in came[:cut]]
    for entry in came[cut:]:
        heads.follow(0)
        changes.steps.append((entry.id, True))
    followed = {entry.header.prev for entry in came}
    assert list(heads.sorted()) == sorted(e.position for e in came if e.id not in followed)


def test_a_long_list_is_sorted_at_once() -> None:
    writer, came = Writer(1), []
    genesis = writer.genesis()
    for number in range(70):
        other = Writer(2, epoch=number + 1)
        came.append(other.write(genesis.conversation, said("x"), parents=[genesis]))
    changes = Changes([(entry.id, True) for entry in came])
    heads = Heads({entry.id: entry for entry in came}, changes, Meter())
    assert heads.sorted() == tuple(sorted(entry.position for entry in came))


@pytest.mark.parametrize("count", [1, 100])
def test_a_few_appends_do_not_sort_the_heads_of_all_lanes(count: int) -> None:
    def work(lanes: int) -> int:
        writer = Writer(1)
        genesis = writer.genesis()
        came = [_beside(genesis, number) for number in range(lanes)]
        changes = Changes([(entry.id, True) for entry in came])
        by_id = {entry.id: entry for entry in came}
        heads = Heads(by_id, changes, Meter())
        heads.sorted()
        for _ in range(count):
            entry = writer.write(genesis.conversation, said("x"), parents=[genesis])
            by_id[entry.id] = entry
            changes.steps.append((entry.id, True))
        found = calls(heads.sorted)
        assert heads.digest() == digest_of(sorted(heads.sorted()))
        return found

    assert work(600) <= 1.5 * work(300)


def _beside(genesis: Entry, number: int) -> Entry:
    """Write the first entry of a lane."""
    other = Writer(2, epoch=number + 1)
    return other.write(genesis.conversation, said("x"), parents=[genesis])


@given(histories(), st.integers(0, 14))
def test_heads_move_back_when_entries_are_covered_no_longer(came: list[Entry], kept: int) -> None:
    steps = [(entry.id, True) for entry in came] + [(e.id, False) for e in reversed(came[kept:])]
    heads = Heads({entry.id: entry for entry in came}, Changes(steps), Meter())
    followed = {entry.header.prev for entry in came[:kept]}
    expected = sorted(e.position for e in came[:kept] if e.id not in followed)
    assert list(heads.sorted()) == expected
    assert heads.digest() == digest_of(expected)
