"""Records come back as they were, and only for the log that they were made of."""

from hypothesis import given
from hypothesis import strategies as st

from replica.conversation.entry_store import Stored
from replica.ids import ConversationId, Digest, PublicKey
from syncd import records
from syncd.hub import Hub
from syncd.policy import Policy
from syncd.shelf import Known
from tests.support.call_count import calls
from tests.support.writers import Writer, said

_KEYS = st.binary(min_size=32, max_size=32).map(PublicKey)
_STORED = st.builds(
    Stored,
    st.binary(min_size=32, max_size=32).map(ConversationId),
    st.integers(0, 2**40),
    st.integers(0, 2**40),
)
_KNOWN = st.builds(
    Known,
    st.binary(min_size=32, max_size=32).map(Digest),
    st.frozensets(_KEYS, max_size=4),
    _KEYS,
    st.frozensets(_KEYS, max_size=4),
)


@given(st.dictionaries(_STORED, _KNOWN, max_size=4))
def test_records_come_back(found: dict[Stored, Known]) -> None:
    assert records.unpack(records.pack(found.items())) == found


def test_a_record_without_a_creator_is_left_out() -> None:
    known = Known(Digest(bytes(32)), frozenset())
    assert not records.unpack(records.pack([(Stored(ConversationId(bytes(32)), 1, 1), known)]))


@given(st.dictionaries(_STORED, _KNOWN, min_size=1, max_size=2), st.data())
def test_damaged_records_are_none(found: dict[Stored, Known], data: st.DataObject) -> None:
    packed = bytearray(records.pack(found.items()))
    packed[data.draw(st.integers(0, len(packed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    assert records.unpack(bytes(packed)) == {}
    assert records.unpack(b"") == {}


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
