"""Lane heads as bytes, and their digest (spec/03-order §5)."""

import hashlib
import struct

from hypothesis import given
from hypothesis import strategies as st

from replica.ids import DIGEST_TAG, EntryId, Lane, Position, PublicKey
from replica.log.digest import digest_of, head_bytes

HEAD_BYTES = 81
ids = st.binary(min_size=32, max_size=32)
uint64 = st.integers(0, 2**64 - 1)
positions = st.builds(
    Position,
    st.builds(Lane, ids.map(PublicKey), uint64, st.integers(0, 3)),
    st.integers(0, 2**53 - 1),
    ids.map(EntryId),
)


@given(positions)
def test_a_head_has_fixed_width(head: Position) -> None:
    lane = head.lane
    packed = struct.pack("<32sQBQ32s", lane.author, lane.epoch, lane.track, head.seq, head.id)
    assert head_bytes(head) == packed
    assert len(packed) == HEAD_BYTES


@given(st.lists(positions, max_size=5))
def test_the_digest_is_over_all_heads_as_given(heads: list[Position]) -> None:
    joined = b"".join(map(head_bytes, heads))
    tag = struct.pack("<Q", len(DIGEST_TAG)) + DIGEST_TAG
    expected = hashlib.sha256(tag + struct.pack("<Q", len(joined)) + joined).digest()
    assert digest_of(heads) == expected
