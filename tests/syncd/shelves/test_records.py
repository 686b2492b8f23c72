"""Records come back as they were, and only for the log that they were made of."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.conversation.entry_store import Stored
from replica.ids import ConversationId, PublicKey
from syncd.hub import Hub
from syncd.policy import Policy
from syncd.shelves import records
from syncd.shelves.shelf import Known
from tests.support.call_count import calls
from tests.support.writers import Writer, said

_KEYS = st.binary(min_size=32, max_size=32).map(PublicKey)
_STORED = st.builds(
    Stored,
    st.binary(min_size=32, max_size=32).map(ConversationId),
    st.integers(0, 2**40),
    st.integers(0, 2**40),
    st.integers(0, 2**60),
    st.tuples(st.integers(0, 2**40), st.integers(0, 2**60)),
)
_KNOWN = st.builds(
    Known,
    st.frozensets(_KEYS, max_size=4),
    _KEYS,
    st.frozensets(_KEYS, max_size=4),
    _STORED,
)
ONE, TWO, THREE = (ConversationId(bytes([number]) * 32) for number in range(3))


@given(_KNOWN)
def test_a_record_comes_back(known: Known) -> None:
    assert records.unpack(records.pack(known)) == known


@given(_KNOWN, st.data())
def test_a_damaged_record_is_none(known: Known, data: st.DataObject) -> None:
    packed = bytearray(records.pack(known))
    packed[data.draw(st.integers(0, len(packed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    assert records.unpack(bytes(packed)) is None
    assert records.unpack(b"") is None


@pytest.mark.parametrize("known", [
    None,
    Known(frozenset(), None, stored=Stored(ONE, 1, 1, 1, (1, 1))),
    Known(frozenset(), Writer(1).public),
])  # fmt: skip
def test_what_is_not_known_to_be_whole_has_no_record(known: Known | None) -> None:
    hub = Hub(Writer(9).public, Policy())
    hub.index(ONE, known, None)
    assert records.record_of(hub.shelf, ONE) is None
    assert records.record_of(hub.shelf, TWO) is None


def test_conversations_are_taken_once_they_have_not_changed_for_a_while() -> None:
    unrecorded = records.Unrecorded()
    unrecorded.entries = records.READ_ENTRIES_MAX + 1
    unrecorded.note([ONE, TWO], 1.0)
    unrecorded.note([THREE], 2.0)
    unrecorded.note([ONE], 3.0)
    assert unrecorded.take(0.5, 9) == []
    assert unrecorded.take(2.5, 1) == [TWO]
    assert unrecorded.take(2.5, 9) == [THREE]
    assert unrecorded.take(3.0, 9) == [ONE]
    assert unrecorded.take(9.0, 9) == []


def test_one_that_changes_all_the_time_is_taken_once_it_is_overdue() -> None:
    unrecorded = records.Unrecorded()
    unrecorded.entries = records.READ_ENTRIES_MAX + 1
    unrecorded.note([ONE], 1.0)
    unrecorded.note([TWO], 2.0)
    unrecorded.note([ONE, TWO], 60.0)
    assert unrecorded.take(59.0, 9, overdue=0.5) == []
    assert unrecorded.take(59.0, 9, overdue=1.5) == [ONE]
    unrecorded.note([ONE], 61.0)
    assert unrecorded.take(60.0, 9, overdue=1.5) == [TWO]
    assert unrecorded.take(61.0, 9, overdue=1.5) == [ONE]


def test_none_is_taken_while_a_start_reads_all_anyway() -> None:
    unrecorded = records.Unrecorded()
    unrecorded.entries = records.READ_ENTRIES_MAX
    unrecorded.note([ONE], 1.0)
    assert unrecorded.take(9.0, 9) == []
    unrecorded.entries += 1
    assert unrecorded.take(9.0, 9) == [ONE]


def test_the_records_of_long_logs_cost_the_same() -> None:
    def work(count: int) -> int:
        hub = Hub(Writer(9).public, Policy())
        writer = Writer(1)
        genesis = writer.genesis()
        entries = [genesis]
        for _ in range(count):
            entries.append(writer.write(genesis.conversation, said("x"), parents=[entries[-1]]))
        hub.load(genesis.conversation, entries)
        assert records.record_of(hub.shelf, genesis.conversation) is not None
        return calls(lambda: records.record_of(hub.shelf, genesis.conversation))

    assert work(80) <= work(20) + 5
