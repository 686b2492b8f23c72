"""Ids in requests, with their width checked."""

from antiphon.v1 import sync_pb2 as pb
from replica.ids import ID_BYTES, ConversationId, EntryId, Lane, PublicKey
from replica.refusals import ArgumentInvalid
from syncd.queries import LaneRange


def conversation_id(value: bytes) -> ConversationId:
    """Return a conversation's id from its bytes. Raises ArgumentInvalid."""
    return ConversationId(_of_width(value, "conversation"))


def entry_id_in(value: bytes, field: str) -> EntryId:
    """Return an entry's id from the bytes of a field. Raises ArgumentInvalid."""
    return EntryId(_of_width(value, field))


def lane_range(raw: pb.LaneRange) -> LaneRange:
    """Return positions of a lane. Raises ArgumentInvalid."""
    author = PublicKey(_of_width(raw.author, "ranges.author"))
    return LaneRange(Lane(author, raw.epoch, raw.track), raw.seq_start, raw.seq_end)


def _of_width(value: bytes, field: str) -> bytes:
    if len(value) != ID_BYTES:
        raise ArgumentInvalid(f"{field}: 32 bytes")
    return value
