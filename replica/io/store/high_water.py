"""The mark: how far the entries of a store reached, in a file beside it (spec/04-link §10).

SQLite ends a WAL at its first damaged frame, and takes an empty file for a new
database. Both lose entries without an error, so the last entries stored, and the last
tombstones, are named once more outside the database. The mark is written after each commit and not
synced: it may be behind after a power loss, and never ahead (DECISIONS D223).

    slot      magic, number of the schema, writes of the mark, entries held, entries lost,
              number of records, records, CRC-32
    record    entries held, conversation, id of the last entry of one commit group

A tombstone counts as an entry whose id is zero. Entries that are deleted are not held any
longer, in the records before them neither, and are never lost (DECISIONS D491).
Two slots are written in turn, so that a torn one leaves the other.
"""

import os
import struct
import zlib
from collections.abc import Container, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from replica.ids import ID_BYTES, ConversationId, EntryId
from replica.io.files import open_regular, read_regular
from replica.io.process import get_logger
from replica.log import Entry

GROUPS_MAX = 16
"""Commit groups whose last entries the mark names."""

_TOMBSTONE = EntryId(bytes(ID_BYTES))

_HEAD = struct.Struct("<8sIQQQI")
_RECORD = struct.Struct("<Q32s32s")
_CHECKSUM = struct.Struct("<I")
_MAGIC = b"ANTPMRK1"
_SLOT_BYTES = 4096
assert _HEAD.size + GROUPS_MAX * _RECORD.size + _CHECKSUM.size <= _SLOT_BYTES

_log = get_logger()


@dataclass(frozen=True, slots=True)
class Group:
    """The last entry of one commit group; `stored` counts those held up to it."""

    stored: int
    conversation: ConversationId
    id: EntryId

    @property
    def is_tombstone(self) -> bool:
        """Whether it is the last tombstone of a group, instead of an entry."""
        return self.id == _TOMBSTONE


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a store reached."""

    stored: int = 0
    """Entries and tombstones that the store holds: neither lost nor deleted since."""
    lost: int = 0
    """Entries and tombstones found missing since the last repair."""
    groups: tuple[Group, ...] = ()
    """The newest commit groups, the oldest first."""
    number: int = 0
    """The store's number, draft and steps (schema.py)."""
    written: int = 0
    """Number of times the mark was written, which finds the newer slot."""

    def after(self, entries: Sequence[Entry]) -> "Mark":
        """Return the mark after one more commit group."""
        return self._after(len(entries), entries[-1].conversation, entries[-1].id)

    def after_tombstones(self, conversations: Sequence[ConversationId]) -> "Mark":
        """Return the mark after one more commit group, of tombstones."""
        return self._after(len(conversations), conversations[-1], _TOMBSTONE)

    def _after(self, count: int, conversation: ConversationId, id_: EntryId) -> "Mark":
        group = Group(self.stored + count, conversation, id_)
        return replace(self, stored=group.stored, groups=(*self.groups, group)[-GROUPS_MAX:])

    def without(self, conversation: ConversationId, count: int) -> "Mark":
        """Return the mark without the `count` entries of a conversation that is to be deleted."""
        kept: list[Group] = []
        earlier = count  # of the entries, those before the end of the group that is looked at
        for at, group in reversed(tuple(enumerate(self.groups))):
            if group.conversation != conversation or group.is_tombstone:
                kept.append(replace(group, stored=max(0, group.stored - earlier)))
            elif at:
                earlier = max(0, earlier - (group.stored - self.groups[at - 1].stored))
        stored = max(0, self.stored - count)
        return replace(self, stored=stored, groups=tuple(reversed(kept)))

    def without_tombstones(self, held: Container[ConversationId], lost: int) -> "Mark":
        """Return the mark without `lost` tombstones: all but those of the `held` conversations."""
        kept = (g for g in self.groups if not g.is_tombstone or g.conversation in held)
        groups = tuple(replace(group, stored=max(0, group.stored - lost)) for group in kept)
        return replace(self, stored=max(0, self.stored - lost), groups=groups)

    def after_loss(self, reached: int) -> "Mark":
        """Return the mark of a store whose groups after the first `reached` ones are gone."""
        kept = self.groups[:reached]
        held = kept[-1].stored if kept else max(0, self.groups[0].stored - 1)
        lost = self.lost + self.stored - held
        return replace(self, stored=held, lost=lost, groups=kept)


class MarkFile:
    """The file of one store's mark."""

    def __init__(self, store: Path) -> None:
        """Use the file beside `store`; nothing is opened before the first write."""
        self.path = store.with_name(f"{store.name}.mark")
        self.mark = read(store) or Mark()
        self._descriptor: int | None = None

    def write(self, mark: Mark) -> None:
        """Write the mark, unsynced; a disk that refuses it is logged, and nothing else."""
        self.mark = replace(mark, written=self.mark.written + 1)
        try:
            if self._descriptor is None:
                self._descriptor = open_regular(self.path, os.O_RDWR | os.O_CREAT)
            os.pwrite(self._descriptor, _encode(self.mark), self.mark.written % 2 * _SLOT_BYTES)
        except OSError as error:
            _log.warning("store mark not written", detail=str(error))

    def close(self) -> None:
        """Close the file."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def read(store: Path) -> Mark | None:
    """Return the mark beside `store`; None if there is none that can be read."""
    data = b""
    with suppress(OSError):
        data = read_regular(store.with_name(f"{store.name}.mark"), 2 * _SLOT_BYTES)
    slots = (_decode(data[at : at + _SLOT_BYTES]) for at in (0, _SLOT_BYTES))
    return max((mark for mark in slots if mark), key=lambda mark: mark.written, default=None)


def written_ms(store: Path) -> int:
    """Return when the mark beside `store` was last written, in Unix ms; 0 if there is none."""
    with suppress(OSError):
        return store.with_name(f"{store.name}.mark").stat().st_mtime_ns // 1_000_000
    return 0


def _encode(mark: Mark) -> bytes:
    counts = (mark.number, mark.written, mark.stored, mark.lost, len(mark.groups))
    head = _HEAD.pack(_MAGIC, *counts)
    records = (_RECORD.pack(g.stored, g.conversation, g.id) for g in mark.groups)
    content = head + b"".join(records)
    return content + _CHECKSUM.pack(zlib.crc32(content))


def _decode(slot: bytes) -> Mark | None:
    if len(slot) < _HEAD.size or not slot.startswith(_MAGIC):
        return None
    _, number, written, stored, lost, count = _HEAD.unpack_from(slot)
    end = _HEAD.size + count * _RECORD.size
    if count > GROUPS_MAX or len(slot) < end + _CHECKSUM.size:
        return None
    if _CHECKSUM.unpack_from(slot, end) != (zlib.crc32(slot[:end]),):
        return None
    records = _RECORD.iter_unpack(slot[_HEAD.size : end])
    groups = (Group(n, ConversationId(c), EntryId(i)) for n, c, i in records)
    return Mark(stored, lost, tuple(groups), number, written)
