"""Several cuts of one key keep what all of them keep, in a walk over each entry once."""

from hypothesis import given
from hypothesis import strategies as st

from replica.ids import EntryId
from replica.log.cuts import KeptEntries, KeptIds
from replica.log.entry import Entry
from tests.support.call_count import calls
from tests.support.stories import cut_at
from tests.support.writers import Writer, said

BOB = Writer(2)
GENESIS = Writer(1).genesis()


def _lane(length: int, forks: list[int]) -> dict[EntryId, Entry]:
    """Return a lane, and further ones that leave it behind some of its entries."""
    writer, twins, entries = Writer(2), {}, {}
    for seq in range(length):
        twins[seq] = writer.restored()
        entry = writer.write(GENESIS.conversation, said(str(seq)), parents=[GENESIS])
        entries[entry.id] = entry
    for number, seq in enumerate(forks):
        twin = twins[seq % length]
        for step in range(3):
            text = said(f"fork {number} {step}")
            entry = twin.write(GENESIS.conversation, text, parents=[GENESIS])
            entries[entry.id] = entry
    return entries


def _naive(entries: dict[EntryId, Entry], revocations: list[list[Entry]]) -> frozenset[EntryId]:
    kept = frozenset(entries)
    for tips in revocations:
        inside = set()
        for tip in tips:
            at: Entry | None = tip
            while at is not None:
                inside.add(at.id)
                at = entries.get(at.header.prev) if at.header.prev else None
        kept &= inside
    return kept


@given(st.data())
def test_the_kept_entries_are_those_of_every_revocation(data: st.DataObject) -> None:
    entries = _lane(6, data.draw(st.lists(st.integers(0, 5), max_size=3)))
    of_one = st.lists(st.sampled_from(list(entries.values())), min_size=1, max_size=2)
    revocations = data.draw(st.lists(of_one, min_size=1, max_size=5))
    kept = KeptEntries(BOB.public, entries.get)
    assert not kept.is_cut
    for tips in revocations:
        kept.cut([cut_at(tip) for tip in tips])
    assert kept.ids() == _naive(entries, revocations)
    assert kept.is_cut


def test_many_revocations_walk_a_lane_once() -> None:
    entries = _lane(200, [])
    tips = [cut_at(entry) for entry in entries.values()]

    def work(count: int) -> int:
        kept = KeptEntries(BOB.public, entries.get)
        kept.cut([tips[0]])

        def cut_all() -> None:
            for cut in tips[-count:]:
                kept.cut([cut])

        return calls(cut_all)

    # The first walk passes the lane; each further revocation costs a few calls of its own.
    assert work(100) - work(1) < 100 * 40


@given(st.data())
def test_what_was_dropped_since_an_earlier_signature_leaves_the_kept_entries(
    data: st.DataObject,
) -> None:
    entries = _lane(6, data.draw(st.lists(st.integers(0, 5), max_size=2)))
    of_one = st.lists(st.sampled_from(list(entries.values())), max_size=2)
    revocations = data.draw(st.lists(of_one, min_size=1, max_size=4))
    is_continued = data.draw(st.booleans())
    earlier, later = (KeptEntries(BOB.public, entries.get) for _ in range(2))
    split = data.draw(st.integers(1, len(revocations)))
    for index, tips in enumerate(revocations):
        if index < split:
            earlier.cut([cut_at(tip) for tip in tips])
        if is_continued or index >= split:
            later.cut([cut_at(tip) for tip in tips])
    dropped = later.dropped_since(earlier.signature)
    if dropped is not None:
        assert earlier.ids() - dropped == later.ids()


def test_a_cut_moved_by_one_entry_shows_it_in_a_few_steps() -> None:
    def work(length: int) -> int:
        entries = _lane(length, [])
        lane = list(entries.values())
        earlier, later = (KeptEntries(BOB.public, entries.get) for _ in range(2))
        earlier.cut([cut_at(lane[-2])])
        for at in (-2, -3):
            later.cut([cut_at(lane[at])])
        assert later.dropped_since(earlier.signature) == {lane[-2].id}
        return calls(lambda: later.dropped_since(earlier.signature))

    assert work(400) == work(40)
    assert KeptEntries(BOB.public, {}.get).dropped_since(()) == set()


def test_a_long_way_between_two_cuts_is_not_walked() -> None:
    entries = _lane(1_100, [])
    lane = list(entries.values())
    earlier, later = (KeptEntries(BOB.public, entries.get) for _ in range(2))
    earlier.cut([cut_at(lane[-1])])
    later.cut([cut_at(lane[3])])
    assert later.dropped_since(earlier.signature) is None


_IDS = [EntryId(bytes([number]) * 32) for number in range(8)]


@given(st.data())
def test_ids_that_are_dropped_leave_a_set_as_from_any_other(data: st.DataObject) -> None:
    some = st.sets(st.sampled_from(_IDS))
    ids = data.draw(some)
    kept, expected = [KeptIds(frozenset(ids))], [frozenset(ids)]
    for dropped in data.draw(st.lists(some, max_size=3)):
        kept.append(kept[-1].without(dropped & expected[-1]))
        expected.append(expected[-1] - dropped)
    apart = frozenset(data.draw(some))
    kept, expected = [*kept, KeptIds(apart)], [*expected, apart]
    for one, is_one in zip(kept, expected, strict=True):
        assert one == is_one
        assert (len(one), sorted(one)) == (len(is_one), sorted(is_one))
        assert [i in one for i in _IDS] == [i in is_one for i in _IDS]
        for other, is_other in zip(kept, expected, strict=True):
            assert one - other == is_one - is_other
            assert one ^ other == is_one ^ is_other


def test_ids_that_are_dropped_one_by_one_are_copied_now_and_then() -> None:
    ids = [EntryId(number.to_bytes(32, "big")) for number in range(3_000)]
    kept = KeptIds(frozenset(ids))

    def work(dropped: EntryId) -> int:
        nonlocal kept
        before = kept
        kept = kept.without({dropped})
        assert before - kept == {dropped}
        return kept._ids is not before._ids

    assert sum(map(work, ids)) == 2
    assert not kept
