"""A conversation in one file (spec/02-entry, bundles): backup, hand-over, archive.

    magic, 20 B · records · end record · SHA-256 over all before it, 32 B

A record is its type, 1 B, its length, 8 B little-endian, and its content. The
first record is the draft number of the rules, 8 B. Entries follow, as
`antiphon.v1.Entry` messages in (lamport, id) order, then blobs as digest ‖ bytes
in any order. The end record counts both, 8 B each. Entries are carried as the
bytes that were signed. Signatures and rules are not checked here: the caller
admits the entries it reads.
"""

import hashlib
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import SEEK_END
from typing import BinaryIO

from replica.errors import EntryRefused
from replica.ids import ID_BYTES, Digest, short
from replica.limits import BLOB_CHUNK_BYTES, DRAFT, FRAME_BYTES_MAX
from replica.log import codec
from replica.log.entry import Entry, verify_body
from replica.log.kinds import Kind
from replica.refusals import BundleInvalid, DraftUnknown

MAGIC = b"antiphon/v1/bundle\r\n"
"""The version, and a line end that reveals a transfer with changed line ends."""

_ENTRY, _BLOB, _END, _DRAFT = 1, 2, 3, 4
_RECORD = struct.Struct("<BQ")
_COUNTS = struct.Struct("<QQ")
_NUMBER = struct.Struct("<Q")
_DIGEST_BYTES = hashlib.sha256().digest_size


@dataclass(frozen=True, slots=True)
class BlobSource:
    """A blob to write: `pieces` yields its `size_bytes` bytes, and is read once."""

    digest: Digest
    size_bytes: int
    pieces: Iterable[bytes]


@dataclass(frozen=True, slots=True)
class BundledBlob:
    """A blob in a bundle whose file is open; its bytes stay in the file until they are read."""

    file: BinaryIO
    at: int
    size_bytes: int

    def pieces(self, offset: int = 0) -> Iterator[bytes]:
        """Yield the bytes from `offset` on. Raises BundleInvalid if the file became shorter."""
        yield from _pieces(self.file, self.at + offset, self.at + self.size_bytes)


@dataclass(frozen=True, slots=True)
class Bundle:
    """The content of a file: entries in (lamport, id) order, blobs by digest."""

    entries: tuple[Entry, ...]
    blobs: Mapping[Digest, BundledBlob]


def encode_bundle(entries: Iterable[Entry], blobs: Iterable[BlobSource] = ()) -> Iterator[bytes]:
    """Yield the file piece by piece; `blobs` come in any order.

    Raises BundleInvalid if the entries aren't one conversation from its genesis, or a blob does
    not have its size or digest.
    """
    hasher = hashlib.sha256()
    for piece in _records(entries, blobs):
        hasher.update(piece)
        yield piece
    yield hasher.digest()


def decode_bundle(file: BinaryIO) -> Bundle:
    """Read a whole file, which can be sought in; its blobs are checked and left in the file.

    Raises BundleInvalid, which names the record and byte at fault, and DraftUnknown
    for an intact file of another draft.
    """
    file.seek(0)
    if file.read(len(MAGIC)) != MAGIC:
        raise BundleInvalid("byte 0: this is no bundle, or a bundle of another version")
    end = max(file.seek(0, SEEK_END) - _DIGEST_BYTES, 0)
    reader = _Reader(file, end)
    draft = reader.read_draft()
    if draft != DRAFT and _is_whole(file, end):
        raise DraftUnknown(f"the bundle is of draft {draft}; this version reads draft {DRAFT}")
    reader.read_all()
    if not _is_whole(file, end):
        raise BundleInvalid(f"byte {end}: the file does not have its SHA-256")
    return Bundle(tuple(reader.entries), reader.blobs)


def _is_whole(file: BinaryIO, end: int) -> bool:
    return _digest(file, 0, end) == file.read(_DIGEST_BYTES)


def _pieces(file: BinaryIO, at: int, end: int) -> Iterator[bytes]:
    while at < end:
        file.seek(at)  # somebody else may have read in between
        piece = file.read(min(BLOB_CHUNK_BYTES, end - at))
        if not piece:
            raise BundleInvalid("the file became shorter while it was read")
        at += len(piece)
        yield piece


def _digest(file: BinaryIO, at: int, end: int) -> bytes:
    """Return the SHA-256 of a part of the file, which is left at the end of the part."""
    hasher = hashlib.sha256()
    for piece in _pieces(file, at, end):
        hasher.update(piece)
    return hasher.digest()


def _records(entries: Iterable[Entry], blobs: Iterable[BlobSource]) -> Iterator[bytes]:
    ordered = sorted(entries, key=lambda entry: entry.order_key)
    last: Entry | None = None
    yield MAGIC + _RECORD.pack(_DRAFT, _NUMBER.size) + _NUMBER.pack(DRAFT)
    for number, entry in enumerate(ordered):
        problem = _misplaced(last, entry)
        if problem:
            raise BundleInvalid(f"entry {number}: {problem}")
        data = codec.encode_entry(entry)
        yield _RECORD.pack(_ENTRY, len(data)) + data
        last = entry
    if last is None:
        raise BundleInvalid("a bundle holds at least a genesis")
    count = 0
    for blob in blobs:
        yield _RECORD.pack(_BLOB, ID_BYTES + blob.size_bytes) + blob.digest
        yield from _checked(blob)
        count += 1
    yield _RECORD.pack(_END, _COUNTS.size) + _COUNTS.pack(len(ordered), count)


def _checked(blob: BlobSource) -> Iterator[bytes]:
    hasher, size = hashlib.sha256(), 0
    for piece in blob.pieces:
        hasher.update(piece)
        size += len(piece)
        yield piece
    if size != blob.size_bytes or hasher.digest() != blob.digest:
        raise BundleInvalid(f"blob {short(blob.digest)}: it does not have its size and digest")


def _misplaced(last: Entry | None, entry: Entry) -> str | None:
    """Return why `entry` may not follow `last`, None if it may."""
    if last is None:
        return None if entry.header.kind == Kind.GENESIS else "the first entry is not a genesis"
    if entry.conversation != last.conversation:
        return "it belongs to another conversation"
    if entry.order_key <= last.order_key:
        return "entries are not in (lamport, id) order"
    return None


class _Reader:
    """A cursor over the records; `at` is the byte at which the current one starts."""

    def __init__(self, file: BinaryIO, end: int) -> None:
        self.file = file
        self.end = end
        self.at = len(MAGIC)
        self.number = 0
        self.entries: list[Entry] = []
        self.blobs: dict[Digest, BundledBlob] = {}

    def read_draft(self) -> int:
        """Read the draft number, the first record; files of draft 1 have none."""
        kind, size = self.record()
        if kind != _DRAFT:
            return 1
        if size != _NUMBER.size:
            raise self.error("the draft number has 8 bytes")
        (draft,) = _NUMBER.unpack(self.content(size))
        self.step_over(size)
        return int(draft)

    def read_all(self) -> None:
        ended = False
        while not ended:
            kind, size = self.record()
            ended = self.add(kind, size)
            self.step_over(size)
        if self.at != self.end:
            raise self.error("bytes follow the end record")

    def record(self) -> tuple[int, int]:
        """Return the type of the current record, and the size of its content in bytes."""
        left = self.end - self.at - _RECORD.size
        if left < 0:
            raise self.error("the file ends in the middle of a record")
        start = _pieces(self.file, self.at, self.at + _RECORD.size)
        kind, size = _RECORD.unpack(b"".join(start))
        if size > left:
            raise self.error("the record is longer than the file")
        return kind, size

    def content(self, size: int) -> bytes:
        """Return the content of the current record, which holds no blob."""
        if size > FRAME_BYTES_MAX:
            raise self.error("the record is longer than an entry")
        at = self.at + _RECORD.size
        return b"".join(_pieces(self.file, at, at + size))

    def step_over(self, size: int) -> None:
        self.at += _RECORD.size + size
        self.number += 1

    def add(self, kind: int, size: int) -> bool:
        """Add one record with content of `size` bytes; return True after the last."""
        if kind == _ENTRY:
            self.add_entry(size)
        elif kind == _BLOB:
            self.add_blob(size)
        elif kind != _END:
            raise self.error(f"record type {kind} is not defined")
        elif self.content(size) != self.counts() or not self.entries:
            raise self.error("the end record counts other numbers of entries and blobs")
        return kind == _END

    def counts(self) -> bytes:
        return _COUNTS.pack(len(self.entries), len(self.blobs))

    def add_entry(self, size: int) -> None:
        try:
            entry = codec.decode_entry_message(self.content(size))
            verify_body(entry)
        except EntryRefused as error:
            raise self.error(error.detail) from error
        misplaced = _misplaced(self.entries[-1] if self.entries else None, entry)
        if misplaced or self.blobs:
            raise self.error(misplaced or "entries come before blobs")
        self.entries.append(entry)

    def add_blob(self, size: int) -> None:
        at = self.at + _RECORD.size
        end = at + size
        digest = Digest(self.content(min(size, ID_BYTES)))
        if _digest(self.file, at + len(digest), end) != digest:
            raise self.error("the blob does not have its digest")
        if digest in self.blobs:
            raise self.error("the file has this blob twice")
        self.blobs[digest] = BundledBlob(self.file, at + ID_BYTES, size - ID_BYTES)

    def error(self, problem: str) -> BundleInvalid:
        return BundleInvalid(f"record {self.number} at byte {self.at}: {problem}")
