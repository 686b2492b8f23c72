"""Rows that no digest covers: small values and acks, each with a CRC-32 (spec/04-link §10).

Pure. An ack that fails is dropped, since a comparison finds it again. A value that
fails is refused alone. A value whose key is damaged is told by its checksum.
"""

import struct
from collections.abc import Iterable
from typing import Any

from replica.ids import ID_BYTES, ConversationId, EntryId, Lane, Position, PublicKey
from replica.io.store.rows import checksum_of
from replica.refusals import ValueDamaged

_LANE = struct.Struct("<32sQI")
_HEAD = struct.Struct("<Q32s")
_TIME = struct.Struct("<q")

HUB_KEY = "hub key "
"""Beginning of the keys under which the pinned keys of hubs are stored."""

OWN_KEY = "own key"
"""Key under which a replica or a host keeps the public key that opened its store last."""

TOMBSTONES = ("deleted conversations", "deleted conversations, again")
"""Keys under which a store of three steps has its tombstones: all ids, under each."""

RECORD = "record of "
"""Beginning of the keys under which a hub keeps the record of a conversation; its id follows."""

ERASED = "erased "
"""Beginning of the keys that name conversations erased while a lost end is still to be read."""

ENDING = "ending of "
"""Beginning of the keys under which a replica keeps the lasting refusal of a conversation."""

Row = tuple[Any, ...]


def value_row(key: str, value: bytes) -> Row:
    """Return the row of a small value: key, value, checksum."""
    return key, value, checksum_of(key.encode(), value)


def value_of(key: str, rows: Iterable[Row]) -> bytes | None:
    """Return the value of `key` among rows as read; None if there is none.

    Raises ValueDamaged if its row fails its checksum.
    """
    damaged = False
    for stored_key, value, checksum in rows:
        if isinstance(value, bytes) and checksum == checksum_of(key.encode(), value):
            return value
        if stored_key == key.encode():
            if checksum is None and isinstance(value, bytes):
                return value  # written before there were checksums
            damaged = True
    if damaged:
        raise ValueDamaged(f"the value '{key}' does not have its checksum")
    return None


def ack_row(conversation: ConversationId, peer: PublicKey, position: Position, now_ms: int) -> Row:
    """Return the row of an ack: conversation, peer, lane, head, time, checksum."""
    lane = _LANE.pack(position.lane.author, position.lane.epoch, position.lane.track)
    head = _HEAD.pack(position.seq, position.id)
    checksum = checksum_of(conversation, peer, lane, head, _TIME.pack(now_ms))
    return conversation, peer, lane, head, now_ms, checksum


def acks_of(rows: Iterable[Row]) -> tuple[tuple[Position, ...], int | None]:
    """Return the positions of sound rows, and the latest time in Unix milliseconds."""
    sound = [row for row in rows if _is_sound(row)]
    positions = tuple(_position(lane, head) for _, _, lane, head, _, _ in sound)
    return positions, max((acked_ms for *_, acked_ms, _ in sound), default=None)


def _is_sound(row: Row) -> bool:
    *columns, acked_ms, checksum = row
    if not all(isinstance(column, bytes) for column in columns) or not isinstance(acked_ms, int):
        return False
    if len(columns[2]) != _LANE.size or len(columns[3]) != _HEAD.size:
        return False
    return checksum is None or checksum == checksum_of(*columns, _TIME.pack(acked_ms))


def _position(lane: bytes, head: bytes) -> Position:
    author, epoch, track = _LANE.unpack(lane)
    seq, id_ = _HEAD.unpack(head)
    return Position(Lane(PublicKey(author), epoch, track), seq, EntryId(id_))


def ids_in(value: bytes) -> set[ConversationId]:
    """Return the conversations of a value under one of TOMBSTONES."""
    starts = range(0, len(value) - ID_BYTES + 1, ID_BYTES)
    return {ConversationId(value[at : at + ID_BYTES]) for at in starts}
