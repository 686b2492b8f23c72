"""The store: entries on disk, one SQLite file per replica (promise 3: an ack means durable).

One process holds a store at a time. Writes go through `GroupCommit`; reads have
a connection of their own and never wait for a sync. What was read is served
only if its digests match; the rest moves to quarantine and counts as missing,
so that a peer can send it again. Blobs and keys are beside it, not in it.
"""

import asyncio
import contextlib
import fcntl
import os
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiosqlite
import structlog

from replica.errors import EntryRefused, StoreError
from replica.ids import SIGNATURE_BYTES, ConversationId, EntryId, Lane, Position, PublicKey
from replica.io import schema
from replica.io.commit import GroupCommit, Statement
from replica.io.disk import FILE_MODE, make_folder, sync_folder, typed_errors
from replica.log import Entry, codec, entry_id, verify_body
from replica.refusals import StoreCorrupt, StoreLocked

_LANE = struct.Struct("<32sQI")
_HEAD = struct.Struct("<Q32s")

_APPEND = """
INSERT INTO entries (conversation, id, header, signature, checksum, body)
VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (conversation, id) DO UPDATE SET header = excluded.header,
  signature = excluded.signature, checksum = excluded.checksum,
  body = ifnull(excluded.body, body)
WHERE header IS NOT excluded.header OR signature IS NOT excluded.signature
  OR body IS NOT ifnull(excluded.body, body)
"""
"""A row of that id which differs is damaged: what is appended has been verified."""
_SELECT = "SELECT rowid, id, header, signature, checksum, body FROM entries"
_SAVE_ACK = "INSERT OR REPLACE INTO acks VALUES (?, ?, ?, ?, ?)"
# Both name the bad bytes: what was repaired meanwhile stays.
_QUARANTINE_ENTRY = (
    "INSERT INTO quarantine SELECT conversation, id, header, signature, body, ?1 "
    "FROM entries WHERE rowid = ?2 AND header IS ?3 AND signature IS ?4",
    "DELETE FROM entries WHERE rowid = ?2 AND header IS ?3 AND signature IS ?4",
)
_QUARANTINE_BODY = (
    "INSERT INTO quarantine SELECT conversation, id, NULL, NULL, body, ?1 "
    "FROM entries WHERE rowid = ?2 AND body IS ?3",
    "UPDATE entries SET body = NULL WHERE rowid = ?2 AND body IS ?3",
)
_DELETE = (
    "DELETE FROM entries WHERE conversation = ?",
    "DELETE FROM acks WHERE conversation = ?",
    "DELETE FROM quarantine WHERE conversation = ?",
)

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Stored:
    """How much of one conversation is held."""

    conversation: ConversationId
    entries: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Quarantined:
    """Bytes that failed their digest: a whole entry, or its body alone."""

    conversation: bytes
    id: bytes
    body_only: bool
    why: str


@dataclass(frozen=True, slots=True)
class _Bad:
    """A row to move to quarantine; `values` fill the statements of either sort."""

    body_only: bool
    values: tuple[object, ...]
    why: str


class Store:
    """Entries, acks and small values of one replica; made by `Store.open`."""

    def __init__(
        self, commit: GroupCommit, reader: aiosqlite.Connection, stack: contextlib.AsyncExitStack
    ) -> None:
        """Take over open connections; `stack` releases them."""
        self._commit = commit
        self._reader = reader
        self._stack = stack
        self._closed = False
        self._rebuilt = False
        self.quarantined_count = 0
        """Rows found bad since the store was opened."""

    @classmethod
    async def open(cls, path: Path, *, bytes_max: int | None = None) -> Self:
        """Open or create the store in the file `path`, its folders for this user alone.

        `bytes_max` bounds the database file; beyond it, appends raise StoreFull.
        Raises StoreLocked, StoreVersionUnknown, StoreCorrupt or StoreError.
        """
        async with contextlib.AsyncExitStack() as stack:
            with typed_errors():
                stack.callback(os.close, await asyncio.to_thread(_lock, path))
                await schema.check(path)
                commit = GroupCommit(await _writer(path, bytes_max))
                stack.push_async_callback(commit.close)
                await asyncio.to_thread(sync_folder, path.parent)
                reader = await schema.connect_reader(path)
                stack.push_async_callback(reader.close)
            return cls(commit, reader, stack.pop_all())

    async def close(self) -> None:
        """Write what waits and release the file; harmless when repeated."""
        self._closed = True
        with typed_errors():
            await self._stack.aclose()

    async def __aenter__(self) -> Self:
        """Return the store."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the store."""
        await self.close()

    async def append(self, entries: Sequence[Entry]) -> None:
        """Store admitted entries; return once they are durable.

        An entry already here is left as it is, except that a missing body is
        filled in. Callers that wait at the same time share one sync. Raises
        StoreFull or another StoreError: then none of `entries` was stored.
        """
        if entries:
            size = sum(entry.size_bytes for entry in entries)
            rows = [_row(entry) for entry in entries]
            await self._commit.write([Statement(_APPEND, rows)], size_bytes=size)

    async def load(self, conversation: ConversationId) -> list[Entry]:
        """Return all sound entries of a conversation in (lamport, id) order.

        A body that fails its digest is None in the result, an entry that fails
        is left out; both are quarantined.
        """
        entries, bad = await self._load(conversation)
        if bad:
            await self._quarantine(conversation, bad)
        elif not self._rebuilt and await asyncio.to_thread(_has_gap, entries):
            # Only admitted entries are stored, so their ancestors were too: if rows don't
            # answer to their key, the index is damaged.
            with contextlib.suppress(StoreError):  # The writer logged it.
                await self._rebuild_index()
            entries, _ = await self._load(conversation)
        return entries

    async def _load(self, conversation: ConversationId) -> tuple[list[Entry], list[_Bad]]:
        rows = await self._rows(f"{_SELECT} WHERE conversation = ?", conversation)
        # In a thread, because hashing a long conversation would hold up the event loop.
        return await asyncio.to_thread(_check_rows, conversation, rows)

    async def entry(self, conversation: ConversationId, id_: EntryId) -> Entry | None:
        """Return one entry, checked as in `load`; None if it is not here."""
        rows = await self._rows(f"{_SELECT} WHERE conversation = ? AND id = ?", conversation, id_)
        entries, bad = _check_rows(conversation, rows)
        if bad:
            await self._quarantine(conversation, bad)
        return entries[0] if entries else None

    async def has(self, conversation: ConversationId) -> bool:
        """Tell whether any entry of the conversation is here."""
        sql = "SELECT 1 FROM entries WHERE conversation = ? LIMIT 1"
        return bool(await self._rows(sql, conversation))

    async def conversations(self) -> list[Stored]:
        """List what is held, by conversation id."""
        rows = await self._rows(
            "SELECT conversation, count(*),"
            " sum(length(header) + length(signature) + ifnull(length(body), 0))"
            " FROM entries GROUP BY conversation ORDER BY conversation"
        )
        return [Stored(ConversationId(c), entries, size) for c, entries, size in rows]

    async def delete(self, conversation: ConversationId) -> None:
        """Erase a conversation durably: entries, acks, quarantine; its pages are overwritten."""
        statements = [Statement(sql, [(conversation,)]) for sql in _DELETE]
        await self._commit.write(statements, truncate=True)

    def save_acks(
        self,
        conversation: ConversationId,
        peer: PublicKey,
        positions: Iterable[Position],
        now_ms: int,
    ) -> None:
        """Keep the newest position `peer` acknowledged on each lane.

        Written with the next append or within a second: an ack lost with the
        process is learnt again from the peer.
        """
        for position in positions:
            lane = _LANE.pack(position.lane.author, position.lane.epoch, position.lane.track)
            head = _HEAD.pack(position.seq, position.id)
            row = (conversation, peer, lane, head, now_ms)
            self._commit.write_later((conversation, peer, lane), Statement(_SAVE_ACK, [row]))

    async def load_acks(
        self, conversation: ConversationId, peer: PublicKey | None
    ) -> tuple[tuple[Position, ...], int | None]:
        """Return what `peer` acknowledged, and when it last did, in Unix milliseconds.

        None means all peers: then a lane may be named more than once.
        On a full disk these are older acks: the peer is asked more than need be.
        """
        with contextlib.suppress(StoreError):  # The writer logged it.
            await self._commit.flush()
        rows = await self._rows(
            "SELECT lane, head, acked_ms FROM acks"
            " WHERE conversation = ?1 AND peer = ifnull(?2, peer)",
            conversation,
            peer,
        )
        positions = tuple(_position(lane, head) for lane, head, _ in rows)
        return positions, max((acked for _, _, acked in rows), default=None)

    async def get_meta(self, key: str) -> bytes | None:
        """Return a small value kept under `key`."""
        rows = await self._rows("SELECT value FROM meta WHERE key = ?", key)
        return rows[0][0] if rows else None

    async def put_meta(self, key: str, value: bytes) -> None:
        """Keep a small value; return once it is durable."""
        sql = "INSERT OR REPLACE INTO meta VALUES (?, ?)"
        await self._commit.write([Statement(sql, [(key, value)])])

    async def quarantined(self) -> list[Quarantined]:
        """List what failed its digest and was not deleted since."""
        sql = "SELECT conversation, id, header IS NULL, why FROM quarantine ORDER BY rowid"
        rows = await self._rows(sql)
        return [Quarantined(c, i, bool(b), why.decode()) for c, i, b, why in rows]

    async def _rows(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        if self._closed:
            raise StoreError("the store is closed")
        with typed_errors():
            return [tuple(r) for r in await self._reader.execute_fetchall(sql, parameters)]

    async def _quarantine(self, conversation: ConversationId, bad: Sequence[_Bad]) -> None:
        statements = []
        for row in bad:
            _log.error("entry_quarantined", conversation=conversation.hex(), why=row.why)
            moves = _QUARANTINE_BODY if row.body_only else _QUARANTINE_ENTRY
            statements += [Statement(sql, [(row.why, *row.values)]) for sql in moves]
        self.quarantined_count += len(bad)
        try:
            try:
                await self._commit.write(statements)
            except StoreCorrupt:
                await self._rebuild_index()
                await self._commit.write(statements)
        except StoreError as error:
            # Reading goes on without the bad rows; they are found again at the next load.
            _log.warning("quarantine_failed", reason=error.reason, detail=error.detail)

    async def _rebuild_index(self) -> None:
        self._rebuilt = True
        _log.warning("store_index_rebuilt")
        await self._commit.write([Statement(sql) for sql in schema.REBUILD_INDEX])


def _lock(path: Path) -> int:
    """Lock the store for this process; the lock ends with the descriptor or the process."""
    make_folder(path.parent)
    descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, FILE_MODE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # SQLite would create the file readable to all. Only under the lock: closing a
        # descriptor of a database drops the locks SQLite holds on it in this process.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, FILE_MODE))
    except BlockingIOError as error:
        os.close(descriptor)
        raise StoreLocked(f"another process holds {path}") from error
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


async def _writer(path: Path, bytes_max: int | None) -> aiosqlite.Connection:
    writer = await schema.connect_writer(path)
    try:
        await schema.migrate(writer)
        if bytes_max is not None:
            pages = bytes_max // await schema.pragma(writer, "page_size")
            await writer.execute(f"PRAGMA max_page_count = {pages}")
    except BaseException:
        await writer.close()
        raise
    return writer


def _row(entry: Entry) -> tuple[object, ...]:
    return (
        entry.conversation,
        entry.id,
        entry.header_bytes,
        entry.signature,
        zlib.crc32(entry.signature),
        entry.body,
    )


def _position(lane: bytes, head: bytes) -> Position:
    author, epoch, track = _LANE.unpack(lane)
    seq, id_ = _HEAD.unpack(head)
    return Position(Lane(PublicKey(author), epoch, track), seq, EntryId(id_))


def _check_rows(
    conversation: ConversationId, rows: Iterable[tuple[Any, ...]]
) -> tuple[list[Entry], list[_Bad]]:
    """Split rows into sound entries, in order, and what to quarantine."""
    entries: list[Entry] = []
    bad: list[_Bad] = []
    for rowid, id_, header, signature, checksum, body in rows:
        try:
            entry = _checked(conversation, id_, header, signature, checksum)
        except (EntryRefused, _Damaged) as error:
            bad.append(_Bad(False, (rowid, header, signature), str(error)))
            continue
        try:
            entry = _with_body(entry, body)
        except (EntryRefused, _Damaged) as error:
            bad.append(_Bad(True, (rowid, body), str(error)))
        entries.append(entry)
    entries.sort(key=lambda entry: entry.order_key)
    return entries, bad


class _Damaged(Exception):
    """A column does not hold what was written."""


def _checked(
    conversation: ConversationId, id_: object, header: Any, signature: Any, checksum: object
) -> Entry:
    """Return the entry without its body, or raise what is wrong with it."""
    if not isinstance(header, bytes) or not isinstance(signature, bytes):
        raise _Damaged("header or signature is not bytes")
    if entry_id(header) != id_:
        raise _Damaged("the header does not have the digest it is stored under")
    if len(signature) != SIGNATURE_BYTES or zlib.crc32(signature) != checksum:
        raise _Damaged("the signature does not have its checksum")
    entry = codec.decode_entry(header, signature, None)
    if entry.conversation != conversation:
        raise _Damaged("the header names another conversation")
    return entry


def _with_body(entry: Entry, body: Any) -> Entry:
    if not isinstance(body, bytes | None):
        raise _Damaged("the body is not bytes")
    whole = Entry(entry.header_bytes, entry.signature, body, entry.id, entry.header)
    verify_body(whole)
    return whole


def _has_gap(entries: Sequence[Entry]) -> bool:
    ids = {entry.id for entry in entries}
    return any(not ids.issuperset(entry.header.ancestors()) for entry in entries)
