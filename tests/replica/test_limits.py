"""Limits that rest on one another: each must hold what the others let through."""

from replica import limits
from replica.ids import ConversationId, Digest, EntryId, Lane, Position, PublicKey
from replica.link.codec import encode_frame
from replica.link.messages import Ids, Open
from spec import limit_meanings

ID = bytes(32)


def test_one_entry_of_the_greatest_size_fits_into_a_frame() -> None:
    entry = limits.HEADER_BYTES_MAX + limits.BODY_BYTES_MAX + 64
    assert 2 * entry > limits.FRAME_BYTES_MAX >= entry + 1024, "with what wraps it"


def test_a_full_chunk_of_ids_fits_into_a_frame() -> None:
    ids = tuple(EntryId(n.to_bytes(32, "big")) for n in range(limits.IDS_PER_FRAME))
    frame = encode_frame(Ids(ConversationId(ID), ids, True), "to_hub")
    assert len(frame) <= limits.FRAME_BYTES_MAX


def test_a_frame_can_be_sent_with_the_first_credit() -> None:
    assert limits.CREDIT_BYTES >= 2 * limits.FRAME_BYTES_MAX


def test_a_frames_entries_can_wait_on_a_link_and_a_links_at_the_hub() -> None:
    assert limits.FRAME_BYTES_MAX <= limits.PENDING_LINK_BYTES_MAX <= limits.PENDING_BYTES_MAX


def test_an_open_with_many_lanes_fits_into_a_frame() -> None:
    lanes = [Lane(PublicKey(n.to_bytes(32, "big")), 2**64 - 1, 3) for n in range(8_192)]
    heads = tuple(Position(lane, limits.CLOCK_MAX, EntryId(ID)) for lane in lanes)
    frame = encode_frame(Open(ConversationId(ID), Digest(ID), heads, True), "to_hub")
    assert len(frame) <= limits.FRAME_BYTES_MAX


def test_a_heartbeat_comes_more_than_twice_before_a_link_is_idle() -> None:
    assert limits.IDLE_TIMEOUT_S >= 2 * limits.HEARTBEAT_S
    assert limits.RESYNC_S < limits.HEARTBEAT_S
    assert limits.DENIED_RECHECK_S > limits.RESYNC_S


def test_clocks_are_the_last_numbers_that_doubles_tell_apart() -> None:
    after = limits.CLOCK_MAX + 1
    assert float(limits.CLOCK_MAX) != float(after) == float(after + 1)


def test_a_blob_travels_in_frames_and_fits_among_those_of_its_conversation() -> None:
    assert limits.BLOB_CHUNK_BYTES < limits.FRAME_BYTES_MAX
    assert limits.BLOB_BYTES_MAX <= limits.BLOBS_BYTES_MAX


def test_every_limit_has_a_meaning_in_the_chapter() -> None:
    names = {name for name in vars(limits) if name.isupper()}
    assert names == limit_meanings.MEANINGS.keys()
