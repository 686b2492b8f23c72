"""Ids in requests, with their width checked."""

from collections.abc import Iterable

from antiphon.v1 import sync_pb2 as pb
from replica.ids import ID_BYTES, ConversationId, EntryId, Lane, Position, PublicKey
from replica.link import Entries, Steps, entries_steps, heads_steps
from replica.refusals import ArgumentInvalid, FrameMalformed
from syncd.calls import LaneRange


def conversation_id(value: bytes) -> ConversationId:
    """Return a conversation's id from its bytes. Raises ArgumentInvalid."""
    return ConversationId(_of_width(value, "conversation"))


def entry_id_in(value: bytes, field: str) -> EntryId:
    """Return an entry's id from the bytes of a field. Raises ArgumentInvalid."""
    return EntryId(_of_width(value, field))


def pushed_steps(request: pb.PushRequest) -> Steps[Entries]:
    """Decode a Push in steps. Raises ArgumentInvalid, and EntryRefused where none can be read."""
    try:
        return (yield from entries_steps(request))
    except FrameMalformed as error:
        raise ArgumentInvalid("conversation: 32 bytes") from error


def cursor_steps(cursor: Iterable[pb.LaneHead]) -> Steps[tuple[Position, ...]]:
    """Decode a cursor in steps. Raises ArgumentInvalid."""
    try:
        return (yield from heads_steps(cursor))
    except FrameMalformed as error:
        raise ArgumentInvalid("cursor: 32 bytes for each key and id") from error


def lane_range(raw: pb.LaneRange) -> LaneRange:
    """Return positions of a lane. Raises ArgumentInvalid."""
    author = PublicKey(_of_width(raw.author, "ranges.author"))
    return LaneRange(Lane(author, raw.epoch, raw.track), raw.seq_start, raw.seq_end)


def _of_width(value: bytes, field: str) -> bytes:
    if len(value) != ID_BYTES:
        raise ArgumentInvalid(f"{field}: 32 bytes")
    return value
