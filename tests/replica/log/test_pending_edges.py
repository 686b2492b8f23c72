"""Pending entries and the names they lack (spec/02-entry §6)."""

import pytest

from replica.log.entry import Entry
from replica.log.pending import PendingEntries
from tests.support.sample import Sample


@pytest.fixture
def lane() -> list[Entry]:
    """Three messages of one lane, each following the one before."""
    return Sample().chain(3)


@pytest.fixture
def pending(lane: list[Entry]) -> PendingEntries:
    """All three, the first complete and so the others as well."""
    entries = PendingEntries()
    for entry, before in zip(lane, [None, *lane], strict=False):
        assert entries.add(entry, (before.id,) if before else ())
        assert entries.mark_complete(entry.id) == []
    return entries


def test_a_complete_entry_releases_those_that_lack_it_alone(lane: list[Entry]) -> None:
    first, second, third = lane
    entries = PendingEntries()
    assert not entries.add(third, (first.id, second.id))
    assert not entries.add(second, (first.id,))
    assert entries.add(first, ())
    assert entries.mark_complete(first.id) == [second.id]
    assert entries.mark_complete(second.id) == [third.id]


def test_complete_entries_are_found_by_their_author(
    pending: PendingEntries, lane: list[Entry]
) -> None:
    author = lane[0].header.author
    assert pending.complete_by([author]) == [entry.id for entry in lane]
    assert pending.complete_by([]) == []


def test_a_dropped_entry_and_all_that_follow_it_are_complete_no_more(
    pending: PendingEntries, lane: list[Entry]
) -> None:
    first, second, third = lane
    pending.drop(second.id)
    assert pending.complete_by([first.header.author]) == [first.id]
    assert list(pending.entries) == [first.id, third.id]
    assert pending.missing_for(third.id, (), 9) == [second.id]
    assert pending.add(second, (first.id,))
    assert pending.mark_complete(second.id) == [third.id]


@pytest.mark.parametrize("backwards", [False, True])
def test_nothing_is_kept_of_entries_that_are_pending_no_more(
    pending: PendingEntries, lane: list[Entry], backwards: bool
) -> None:
    for entry in lane[:: -1 if backwards else 1]:
        pending.drop(entry.id)
        pending.drop(entry.id)
    assert pending.size_bytes == 0
    assert not pending.entries
    assert not list(pending.named_ids())
    assert pending.complete_by([lane[0].header.author]) == []
    assert not any((pending._named, pending._unmet, pending._namers, pending._complete)), (
        "memory is bounded by the pending entries"
    )
