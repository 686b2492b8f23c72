"""A conversation in one file (spec/02-entry, bundles): backup, hand-over, archive.

    magic, 20 B · records · end record · SHA-256 over all before it, 32 B

A record is its type, 1 B, its length, 8 B little-endian, and its content:
entries as `antiphon.v1.Entry` messages in (lamport, id) order, then blobs as
digest ‖ bytes in any order; the end record counts both, 8 B each. Entries
are carried as the bytes that were signed. Signatures and rules are the
business of admission, which whatever is read here passes next.
"""

import hashlib
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from replica.errors import EntryRefused
from replica.ids import ID_BYTES, Digest
from replica.log import codec
from replica.log.entry import Entry, Kind, verify_body
from replica.refusals import BundleInvalid

MAGIC = b"antiphon/v1/bundle\r\n"
"""Names the version; the line end shows a transfer that changed line ends."""

_ENTRY, _BLOB, _END = 1, 2, 3
_RECORD = struct.Struct("<BQ")
_COUNTS = struct.Struct("<QQ")


@dataclass(frozen=True, slots=True)
class Bundle:
    """What a file holds: entries in (lamport, id) order, blobs by digest."""

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

    Raises BundleInvalid, which says at which record and byte it went wrong.
    """
    if not data.startswith(MAGIC):
        raise BundleInvalid("byte 0: this is not a bundle, or one of another version")
    end = len(data) - hashlib.sha256().digest_size
    reader = _Reader(data, end)
    reader.read_all()
    if hashlib.sha256(data[:end]).digest() != data[end:]:
        raise BundleInvalid(f"byte {end}: the file does not have its SHA-256")
    return Bundle(tuple(reader.entries), reader.blobs)


def _records(entries: Iterable[Entry], blobs: Iterable[tuple[Digest, bytes]]) -> Iterator[bytes]:
    ordered = sorted(entries, key=lambda entry: entry.order_key)
    last: Entry | None = None
    yield MAGIC
    for number, entry in enumerate(ordered):
        wrong = _misplaced(last, entry)
        if wrong:
            raise BundleInvalid(f"entry {number}: {wrong}")
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
    """Tell what is wrong with `entry` after `last`, if anything is."""
    if last is None:
        return None if entry.header.kind == Kind.GENESIS else "the first entry is not a genesis"
    if entry.conversation != last.conversation:
        return "it belongs to another conversation"
    if entry.order_key <= last.order_key:
        return "entries are not in (lamport, id) order"
    return None


class _Reader:
    """Walks the records; `at` is the byte where the present record starts."""

    def __init__(self, data: bytes, end: int) -> None:
        self.data = data
        self.end = end
        self.at = len(MAGIC)
        self.number = 0
        self.entries: list[Entry] = []
        self.blobs: dict[Digest, bytes] = {}

    def read_all(self) -> None:
        ended = False
        while not ended:
            content_at = self.at + _RECORD.size
            if content_at > self.end:
                raise self.wrong("the file ends in the middle of a record")
            kind, size = _RECORD.unpack_from(self.data, self.at)
            if size > self.end - content_at:
                raise self.wrong("the record is longer than the file")
            ended = self.receive(kind, self.data[content_at : content_at + size])
            self.at = content_at + size
            self.number += 1
        if self.at != self.end:
            raise self.wrong("bytes follow the end record")

    def receive(self, kind: int, content: bytes) -> bool:
        """Take one record in; True after the last."""
        if kind == _ENTRY:
            self.receive_entry(content)
        elif kind == _BLOB:
            self.receive_blob(content)
        elif kind != _END:
            raise self.wrong(f"record type {kind} is not defined")
        elif content != _COUNTS.pack(len(self.entries), len(self.blobs)) or not self.entries:
            raise self.wrong("the end record does not count what came before it")
        return kind == _END

    def receive_entry(self, content: bytes) -> None:
        try:
            entry = codec.decode_entry_message(content)
            verify_body(entry)
        except EntryRefused as error:
            raise self.wrong(error.detail) from error
        misplaced = _misplaced(self.entries[-1] if self.entries else None, entry)
        if misplaced or self.blobs:
            raise self.wrong(misplaced or "entries come before blobs")
        self.entries.append(entry)

    def receive_blob(self, content: bytes) -> None:
        digest, blob = Digest(content[:ID_BYTES]), content[ID_BYTES:]
        if hashlib.sha256(blob).digest() != digest:
            raise self.wrong("the blob does not have its digest")
        if digest in self.blobs:
            raise self.wrong("the blob is there twice")
        self.blobs[digest] = blob

    def wrong(self, what: str) -> BundleInvalid:
        return BundleInvalid(f"record {self.number} at byte {self.at}: {what}")
