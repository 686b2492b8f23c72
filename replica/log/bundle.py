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

from replica.errors import EntryRefused
from replica.ids import ID_BYTES, Digest
from replica.limits import DRAFT
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


@dataclass(frozen=True, slots=True)
class Bundle:
    """The content of a file: entries in (lamport, id) order, blobs by digest."""

    entries: tuple[Entry, ...]
    blobs: Mapping[Digest, bytes]


def encode_bundle(
    entries: Iterable[Entry], blobs: Iterable[tuple[Digest, bytes]] = ()
) -> Iterator[bytes]:
    """Yield the file piece by piece; `blobs` may be read lazily, in any order.

    Raises BundleInvalid if the entries aren't one conversation from its genesis.
    """
    hasher = hashlib.sha256()
    for piece in _records(entries, blobs):
        hasher.update(piece)
        yield piece
    yield hasher.digest()


def decode_bundle(data: bytes) -> Bundle:
    """Read a whole file.

    Raises BundleInvalid, which names the record and byte at fault, and DraftUnknown
    for an intact file of another draft.
    """
    if not data.startswith(MAGIC):
        raise BundleInvalid("byte 0: this is no bundle, or a bundle of another version")
    end = len(data) - hashlib.sha256().digest_size
    is_whole = hashlib.sha256(data[:end]).digest() == data[end:]
    reader = _Reader(data, end)
    draft = reader.read_draft()
    if is_whole and draft != DRAFT:
        raise DraftUnknown(f"the bundle is of draft {draft}; this version reads draft {DRAFT}")
    reader.read_all()
    if not is_whole:
        raise BundleInvalid(f"byte {end}: the file does not have its SHA-256")
    return Bundle(tuple(reader.entries), reader.blobs)


def _records(entries: Iterable[Entry], blobs: Iterable[tuple[Digest, bytes]]) -> Iterator[bytes]:
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
    for digest, data in blobs:
        yield _RECORD.pack(_BLOB, len(digest) + len(data)) + digest
        yield data
        count += 1
    yield _RECORD.pack(_END, _COUNTS.size) + _COUNTS.pack(len(ordered), count)


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

    def __init__(self, data: bytes, end: int) -> None:
        self.data = data
        self.end = end
        self.at = len(MAGIC)
        self.number = 0
        self.entries: list[Entry] = []
        self.blobs: dict[Digest, bytes] = {}

    def read_draft(self) -> int:
        """Read the draft number, the first record; files of draft 1 have none."""
        kind, content, next_at = self.record()
        if kind != _DRAFT:
            return 1
        if len(content) != _NUMBER.size:
            raise self.error("the draft number has 8 bytes")
        self.step_to(next_at)
        (draft,) = _NUMBER.unpack(content)
        return int(draft)

    def read_all(self) -> None:
        ended = False
        while not ended:
            kind, content, next_at = self.record()
            ended = self.add(kind, content)
            self.step_to(next_at)
        if self.at != self.end:
            raise self.error("bytes follow the end record")

    def record(self) -> tuple[int, bytes, int]:
        """Return the type and content of the current record, and the start of the next."""
        content_at = self.at + _RECORD.size
        if content_at > self.end:
            raise self.error("the file ends in the middle of a record")
        kind, size = _RECORD.unpack_from(self.data, self.at)
        if size > self.end - content_at:
            raise self.error("the record is longer than the file")
        return kind, self.data[content_at : content_at + size], content_at + size

    def step_to(self, next_at: int) -> None:
        self.at = next_at
        self.number += 1

    def add(self, kind: int, content: bytes) -> bool:
        """Add the content of one record; return True after the last."""
        if kind == _ENTRY:
            self.add_entry(content)
        elif kind == _BLOB:
            self.add_blob(content)
        elif kind != _END:
            raise self.error(f"record type {kind} is not defined")
        elif content != _COUNTS.pack(len(self.entries), len(self.blobs)) or not self.entries:
            raise self.error("the end record counts other numbers of entries and blobs")
        return kind == _END

    def add_entry(self, content: bytes) -> None:
        try:
            entry = codec.decode_entry_message(content)
            verify_body(entry)
        except EntryRefused as error:
            raise self.error(error.detail) from error
        misplaced = _misplaced(self.entries[-1] if self.entries else None, entry)
        if misplaced or self.blobs:
            raise self.error(misplaced or "entries come before blobs")
        self.entries.append(entry)

    def add_blob(self, content: bytes) -> None:
        digest, blob = Digest(content[:ID_BYTES]), content[ID_BYTES:]
        if hashlib.sha256(blob).digest() != digest:
            raise self.error("the blob does not have its digest")
        if digest in self.blobs:
            raise self.error("the file has this blob twice")
        self.blobs[digest] = blob

    def error(self, problem: str) -> BundleInvalid:
        return BundleInvalid(f"record {self.number} at byte {self.at}: {problem}")
