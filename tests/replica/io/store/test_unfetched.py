"""The note of a repair: what was lost and is not back, whatever came since (DECISIONS D565)."""

from dataclasses import replace

from replica.ids import ConversationId, EntryId
from replica.io.store.unfetched import Unfetched, decode

WRITTEN_MS = 1_700_000_000_000
LATER_MS = WRITTEN_MS + 3_600_000


def ids(count: int, *, first: int = 0) -> list[EntryId]:
    return [EntryId(bytes([number]) * 32) for number in range(first, first + count)]


def times(count: int, time_ms: int = WRITTEN_MS, *, first: int = 0) -> dict[EntryId, int]:
    return dict.fromkeys(ids(count, first=first), time_ms)


END = (ConversationId(bytes(32)), EntryId(b"\xff" * 32))


def test_what_came_back_is_lost_no_more() -> None:
    note = Unfetched(lost=5, written_ms=WRITTEN_MS).at(times(3))
    assert note.without(times(3)).lost == 5
    assert note.without(times(6)).lost == 2
    assert note.without(times(9)).lost == 0


def test_what_others_wrote_since_makes_up_for_no_loss() -> None:
    note = Unfetched(lost=5, written_ms=WRITTEN_MS).at(times(3))
    since = times(20, LATER_MS, first=50)
    assert note.without(times(3) | since).lost == 5
    assert note.without(times(8) | since).lost == 0


def test_an_entry_that_the_mark_names_is_lost_until_it_is_back() -> None:
    note = Unfetched(lost=2, written_ms=WRITTEN_MS, ends=(END,)).at(times(3))
    assert note.without(times(9)) == replace(note, lost=1, held=9)
    back = times(9) | {END[1]: LATER_MS}
    assert (note.without(back).lost, note.without(back).ends) == (0, ())


def test_a_deletion_makes_no_loss_greater() -> None:
    note = Unfetched(lost=5, written_ms=WRITTEN_MS).at(times(8))
    assert note.without(times(2)).lost == 5


def test_a_second_loss_adds_to_what_is_not_back_of_the_first() -> None:
    first = Unfetched(lost=5, written_ms=WRITTEN_MS, ends=(END,)).at(times(3))
    second = Unfetched(lost=2, written_ms=LATER_MS).with_earlier(first, times(4))
    assert (second.lost, second.held, second.ends) == (6, 4, (END,))
    assert second.written_ms == LATER_MS


def test_of_two_losses_the_store_was_written_last_before_either() -> None:
    first = Unfetched(lost=1, written_ms=LATER_MS).at(times(3))
    second = Unfetched(lost=1, written_ms=WRITTEN_MS).with_earlier(first, times(3))
    assert second.written_ms == LATER_MS


def test_a_note_of_an_earlier_version_states_no_number() -> None:
    assert decode(b"1") == Unfetched()
    assert decode(b"") is decode(None) is None


def test_the_clock_of_another_member_may_be_ahead() -> None:
    note = Unfetched(lost=1, written_ms=WRITTEN_MS).at(times(3))
    ahead = times(1, WRITTEN_MS + 5 * 60 * 1000, first=50)
    assert note.without(times(3) | ahead).lost == 0
