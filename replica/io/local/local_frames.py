"""The frames between processes that share a store (DECISIONS D340).

    sizes of head and blobs, 4 B each behind their number, 4 B · head, JSON · blobs

Both ends are processes of one user on one machine, with one key; the version that they
agree on changes with any change here. Entries are blobs, byte for byte as they are stored.
"""

import asyncio
import json
import struct
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from replica.conversation import Chain, Slot, decode_new, encode_new
from replica.errors import AntiphonError, StoreError
from replica.ids import ConversationId, EntryId, Lane, Position, PublicKey
from replica.io.serving import error_of
from replica.link import Fault
from replica.log import Conflict, Entry, codec
from replica.refusals import FrameMalformed, StoreLocked

VERSIONS = (2,)
"""The versions known here."""
WITHOUT_EFFECT = frozenset({"nothing", "slot"})
"""Requests that write nothing: they may be repeated, whatever became of them."""
FRAME_BYTES_MAX = 32 * 1024 * 1024
BLOBS_MAX = 65_536
GROUP_BYTES = 4 * 1024 * 1024
"""Size at which entries are divided over several frames."""
_NUMBER = struct.Struct("<I")


class SharingUnsupported(StoreLocked):
    """The process that holds this store shares it in another version."""

    reason = "SHARING_UNSUPPORTED"
    next_step = "End the other process, then start both with the same version of Antiphon."
    retryable = False


class WriteUnconfirmed(StoreError):
    """The process that holds the store did not say whether it wrote this."""

    reason = "WRITE_UNCONFIRMED"
    next_step = (
        "Let that process go on, or end it. Then see with `antiphon log` or `antiphon list` whether"
        " it was written, before you repeat it; a call with a key is found again by itself."
    )


@dataclass(frozen=True, slots=True)
class LocalFrame:
    """One message: a head of JSON values, and blobs."""

    head: dict[str, Any]
    blobs: tuple[bytes, ...] = ()

    @property
    def writes(self) -> bool:
        """Say whether this is a request that writes."""
        return self.head.get("op") not in WITHOUT_EFFECT

    @property
    def is_given_up(self) -> bool:
        """Say whether the process that asked waits for the answer no more."""
        until_s = self.head.get("until_s")
        return until_s is not None and time.monotonic() > until_s

    def encode(self) -> bytes:
        """Return the bytes of the frame."""
        parts = (json.dumps(self.head).encode(), *self.blobs)
        sizes = (_NUMBER.pack(len(part)) for part in parts)
        return b"".join((_NUMBER.pack(len(parts)), *sizes, *parts))


async def read_frame(reader: asyncio.StreamReader) -> LocalFrame | None:
    """Read a frame; None at the end of the stream. Raises FrameMalformed."""
    try:
        (count,) = _NUMBER.unpack(await reader.readexactly(_NUMBER.size))
        if not 0 < count <= BLOBS_MAX:
            raise FrameMalformed(f"a frame of {count} parts")
        sizes = struct.unpack(f"<{count}I", await reader.readexactly(_NUMBER.size * count))
        if sum(sizes) > FRAME_BYTES_MAX:
            raise FrameMalformed(f"a frame of {sum(sizes)} bytes")
        head, *blobs = [await reader.readexactly(size) for size in sizes]
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    try:
        decoded = json.loads(head)
    except ValueError as error:
        raise FrameMalformed("the head of a frame is no JSON") from error
    if not isinstance(decoded, dict):
        raise FrameMalformed("the head of a frame is no object")
    return LocalFrame(decoded, tuple(blobs))


# --- entries ------------------------------------------------------------------------------


def grouped(entries: Iterable[Entry]) -> Iterator[tuple[Entry, ...]]:
    """Yield entries of one conversation each, in groups that fit into a frame, in order."""
    group: list[Entry] = []
    size = 0
    for entry in entries:
        is_other = group and entry.conversation != group[0].conversation
        if is_other or size > GROUP_BYTES or len(group) == BLOBS_MAX - 1:
            yield tuple(group)
            group, size = [], 0
        group.append(entry)
        size += entry.size_bytes
    if group:
        yield tuple(group)


def entry_blobs(entries: Iterable[Entry]) -> tuple[bytes, ...]:
    """Return entries as blobs."""
    return tuple(codec.encode_entry(entry) for entry in entries)


def entries_in(frame: LocalFrame) -> tuple[Entry, ...]:
    """Return the entries of a frame. Raises EntryRefused."""
    return tuple(codec.decode_entry_message(blob) for blob in frame.blobs)


# --- chains -------------------------------------------------------------------------------


def chain_frame(head: dict[str, Any], chain: Chain) -> LocalFrame:
    """Return a frame with a chain."""
    encoded = [encode_new(new) for new in chain.entries]
    fields = {
        "kinds": [kind for kind, _ in encoded],
        "parents": [parent.hex() for parent in chain.parents],
        "basis": chain.basis.hex() if chain.basis is not None else None,
        "conflict": int(chain.conflict),
        "slot": slot_fields(chain.slot) if chain.slot is not None else None,
    }
    return LocalFrame(head | fields, tuple(content for _, content in encoded))


def chain_in(frame: LocalFrame) -> Chain:
    """Return the chain of a frame. Raises BodyMalformed."""
    head = frame.head
    return Chain(
        tuple(map(decode_new, head["kinds"], frame.blobs)),
        tuple(entry_id(parent) for parent in head["parents"]),
        entry_id(head["basis"]) if head["basis"] is not None else None,
        Conflict(head["conflict"]),
        slot_of(head["slot"]) if head["slot"] is not None else None,
    )


def slot_fields(slot: Slot) -> list[Any]:
    """Return a slot as JSON values."""
    return [slot.lane.author.hex(), slot.lane.epoch, int(slot.lane.track), slot.seq]


def slot_of(fields: list[Any]) -> Slot:
    """Return the slot of `slot_fields`."""
    author, epoch, track, seq = fields
    return Slot(Lane(PublicKey(bytes.fromhex(author)), epoch, track), seq)


def position_fields(position: Position) -> list[Any]:
    """Return a position as JSON values."""
    return [*slot_fields(Slot(position.lane, position.seq)), position.id.hex()]


def position_of(fields: list[Any]) -> Position:
    """Return the position of `position_fields`."""
    slot = slot_of(fields[:-1])
    return Position(slot.lane, slot.seq, entry_id(fields[-1]))


def entry_id(text: str) -> EntryId:
    """Return the id of its hex digits."""
    return EntryId(bytes.fromhex(text))


def conversation_in(frame: LocalFrame) -> ConversationId:
    """Return the conversation that a frame is about."""
    return ConversationId(bytes.fromhex(frame.head["conversation"]))


# --- errors -------------------------------------------------------------------------------


def error_fields(error: AntiphonError) -> dict[str, Any]:
    """Return an error as JSON values."""
    fields = asdict(Fault.of(error))
    fields["missing"] = [one.hex() for one in fields["missing"]]
    return {
        name: fields[name] for name in ("reason", "detail", "next_step", "retryable", "missing")
    }


def error_in(fields: dict[str, Any]) -> AntiphonError:
    """Return the typed error of `error_fields`."""
    missing = tuple(entry_id(one) for one in fields["missing"])
    return error_of(Fault(**(fields | {"missing": missing})))
