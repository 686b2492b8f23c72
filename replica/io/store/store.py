"""The store: entries on disk, one SQLite file per replica (an ack means durable).

One process holds a store at a time. Writes go through `GroupCommit`; reads use
a connection of their own and never wait for a sync. Rows are served only if
their digests match. Other rows are quarantined as whole entries and count as
missing, so that a peer can send them again (DECISIONS D77, D79). Only stores of
the current draft are opened (DECISIONS D80). Blobs and keys are kept elsewhere.
"""

import asyncio
import contextlib
import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Self, TypeVar

from replica.conversation import Loaded, Quarantined, Stored
from replica.errors import ReplicaClosed, StoreError
from replica.ids import ConversationId, EntryId, Position, PublicKey
from replica.io.files import file_at, sync_folder, typed_errors
from replica.io.process import Closing
from replica.io.store import schema, small_rows, store_lock, tail
from replica.io.store import statements as sql
from replica.io.store.appending import Appending
from replica.io.store.commit import GroupCommit
from replica.io.store.connection import Connection
from replica.io.store.erasing import ErasingSteps
from replica.io.store.high_water import MarkFile
from replica.io.store.hub_bringers import HubBringers
from replica.io.store.hub_records import HubRecords
from replica.io.store.repair import Repairs
from replica.io.store.rows import ENTRY, Examined, examine
from replica.io.store.stored_conversations import stored_conversations
from replica.io.store.tombstones import Tombstones, putting
from replica.io.store.transaction import Statement, WritingConnection
from replica.log import CONTROL_KINDS, Entry
from replica.refusals import StoreCorrupt, ValueDamaged

Rows = list[tuple[Any, ...]]
_Result = TypeVar("_Result")
FEW_ROWS, FEW_BYTES = 16, 65_536
"""Rows and bytes of bodies up to which a conversation is examined at once: a thread costs more."""


class Store(Closing):
    """Entries, acks and small values of one replica; made by `Store.open`."""

    def __init__(
        self,
        commit: GroupCommit,
        reader: Connection,
        stack: contextlib.AsyncExitStack,
        mark: MarkFile,
        path: Path,
    ) -> None:
        """Use open connections to `path` and the mark's file; `stack` closes them."""
        self.lost_count = mark.mark.lost
        """Number of entries at the end of the store that are gone since the last repair.

        A tombstone counts as one (DECISIONS D474).
        """
        self._mark = mark
        self._path, self._file = path, file_at(path)
        self._commit = commit
        self._reader = reader
        self._stack = stack
        self._closed = False
        self._repairs = Repairs(commit)
        self._appending, self._looking = Appending(), asyncio.Lock()
        self.tombstones = Tombstones(commit, self._rows, mark)
        self.records = HubRecords(commit, self._rows)
        self.bringers = HubBringers(commit, self._rows)

    @classmethod
    async def open(cls, path: Path, *, bytes_max: int | None = None) -> Self:
        """Open or create the store in the file `path`, in folders private to this user.

        `bytes_max` bounds the database file; beyond it, appends raise StoreFull.
        A refused file stays unchanged, except that SQLite rolls back a transaction
        that a killed process left incomplete.
        Raises StoreLocked, DraftUnknown, StoreVersionUnknown, StoreCorrupt or StoreError.
        """
        async with contextlib.AsyncExitStack() as stack:
            with typed_errors(path):
                # Without a thread: a caller that is cancelled meanwhile would leave it locked.
                stack.callback(store_lock.unlock, store_lock.lock(path))
                mark = MarkFile(path)
                stack.callback(mark.close)
                async with contextlib.AsyncExitStack() as reading:
                    reader = await _reader(path, mark)
                    reading.push_async_callback(reader.close)
                    commit = GroupCommit(await _writer(path, bytes_max), path)
                    stack.push_async_callback(commit.close)
                    stack.push_async_exit(reading.pop_all())
            if mark.mark.number != schema.number():
                mark.write(replace(mark.mark, number=schema.number()))
            return cls(commit, reader, stack.pop_all(), mark, path)

    async def close(self) -> None:
        """Perform the queued writes and release the file; do nothing when repeated."""
        self._closed = True
        with typed_errors():
            await self._stack.aclose()

    async def append(
        self, entries: Sequence[Entry], *, may_repeat: bool = False, at_once: bool = False
    ) -> None:
        """Store admitted entries; return once they are durable.

        A stored entry is unchanged, except that a missing body is added. Those of processes that
        share the store `may_repeat`: each receives what the hub sends.
        Concurrent callers share one sync, unless it is to begin `at_once`. Raises StoreFull or
        another StoreError; then none of `entries` was stored.
        """
        if not entries:
            return
        with self._appending.new_of(entries) as begun:
            held = set[EntryId]()
            if may_repeat:
                async with self._looking:  # before any append that came later writes
                    held = await _held_of(begun, self._rows)
            new = [entry for entry in begun if entry.id not in held]
            size = sum(entry.size_bytes for entry in entries)
            statements = sql.appending(entries)
            _require_in_place(self._path, self._file)  # behind the write they would be stored
            await self._commit.write(statements, size_bytes=size, at_once=at_once)
            _require_in_place(self._path, self._file)
            if new:
                self._mark.write(self._mark.mark.after(new))

    async def load(self, conversation: ConversationId, *, bodies: bool = True) -> Loaded:
        """Return the sound entries of a conversation and the ids of the lost ones.

        A body that fails its digest is None in the result. A control entry
        without its body, and an entry whose header or signature fails, is
        returned as lost. All of these are quarantined until they are appended
        again. Without `bodies`, only the bodies of control entries are read
        and checked.
        """
        if not bodies:
            return await self._load_headers(conversation)
        examined = await self._examine(conversation)
        if (examined.gone or examined.strays) and not self._repairs.has_rebuilt:
            # If rows can't be found by their keys, or others are, the index may be damaged.
            with contextlib.suppress(StoreError):  # The writer logged it.
                await self._repairs.rebuild_index()
            examined = await self._examine(conversation)
        await self._repairs.repair(conversation, examined)
        return Loaded(examined.sound, examined.lost)

    async def _examine(self, conversation: ConversationId) -> Examined:
        rows = await self._rows(sql.SELECT, conversation)
        size = sum(len(row[-1]) for row in rows if isinstance(row[-1], bytes | str))
        if len(rows) <= FEW_ROWS and size <= FEW_BYTES:
            return examine(conversation, rows)
        # In a thread, because hashing a long conversation would block the event loop.
        return await asyncio.to_thread(examine, conversation, rows)

    async def _load_headers(self, conversation: ConversationId) -> Loaded:
        rows = await self._rows(sql.SELECT_HEADERS, conversation)
        examined = await asyncio.to_thread(examine, conversation, rows, with_bodies=False)
        control = {e.id for e in examined.sound if e.header.kind in CONTROL_KINDS}
        bodies = await self.load_bodies(conversation, control)
        if not examined.is_clean or control != bodies.keys():
            # A complete load finds all damage and quarantines or repairs it.
            return _without_bodies(await self.load(conversation))
        entries = [replace(entry, body=bodies.get(entry.id)) for entry in examined.sound]
        apart = {EntryId(id_) for sort, _, id_, *_, has_body in rows if sort == ENTRY and has_body}
        return Loaded(entries, examined.lost, frozenset(apart - control))

    async def load_bodies(
        self, conversation: ConversationId, ids: Iterable[EntryId]
    ) -> dict[EntryId, bytes]:
        """Return bodies by entry id, checked as in `load`; missing ones are left out."""
        wanted, found = sorted(ids), dict[EntryId, bytes]()
        for start in range(0, len(wanted), sql.IDS_MAX):
            some = wanted[start : start + sql.IDS_MAX]
            rows = await self._rows(sql.select_some(len(some)), conversation, *some)
            examined = await asyncio.to_thread(examine, conversation, rows)
            await self._repairs.set_aside(conversation, examined.bad)
            found |= {e.id: e.body for e in examined.sound if e.body is not None}
        return found

    async def has(self, conversation: ConversationId) -> bool:
        """Say whether anything of the conversation is stored, including quarantined rows."""
        return bool(await self._rows(sql.HAS, conversation))

    async def conversations(self) -> list[Stored]:
        """List the stored conversations by id; those only in quarantine have 0 entries."""
        return await stored_conversations(self._rows, self._repairs)

    async def delete(self, conversation: ConversationId, *, finishes: bool = False) -> None:
        """Erase entries, acks and quarantine of a conversation durably; overwrite their pages.

        With `finishes` its tombstone states from then on that nothing is left to erase. A
        conversation with a tombstone may be erased in part, so it is then, in steps: in a single
        transaction all appends would wait for a long one (DECISIONS D560), and a nearly full disk
        would refuse what it has room for in parts.
        """
        statements = [Statement(text, [(conversation,)]) for text in sql.DELETE]
        if self.lost_count:  # a repair would bring back what the lost end has of it
            erased = small_rows.value_row(small_rows.ERASED + conversation.hex(), b"")
            statements.append(Statement(sql.PUT_META, [erased]))
        if finishes:
            statements += putting([conversation], finished=True)
        ((count,),) = await self._rows(sql.COUNT, conversation)
        # Before the rows: a process killed in between leaves a mark that is behind, not ahead.
        self._mark.write(self._mark.mark.without(conversation, count))
        steps = ErasingSteps(self._commit, self._rows, conversation)
        try:
            if finishes and count > 1:
                await steps.run()
            # A hub names none, and has records that make this slow.
            names = () if finishes else (sql.DELETE_NAMES,)
            values = (sql.DELETE_RECORD, sql.DELETE_ENDING, *names)
            records = [Statement(text, [(conversation,)]) for text in values]
            try:
                await self._commit.write([*statements, *records], truncate=True)
            except StoreCorrupt:  # if that is the page of the record, the rest is erased
                await self._commit.write(statements, truncate=True)
        except StoreError:
            mark = self._mark.mark
            self._mark.write(replace(mark, stored=mark.stored + count - steps.erased))
            raise

    def save_acks(
        self,
        conversation: ConversationId,
        peer: PublicKey,
        positions: Iterable[Position],
        now_ms: int,
    ) -> None:
        """Save the newest position that `peer` acknowledged on each lane.

        The write happens within a second, often with an append. A peer repeats
        an ack that was lost with the process.
        """
        for position in positions:
            row = small_rows.ack_row(conversation, peer, position, now_ms)
            self._commit.write_later(row[:3], Statement(sql.SAVE_ACK, [row]))

    async def load_acks(
        self, conversation: ConversationId, peer: PublicKey | None
    ) -> tuple[tuple[Position, ...], int | None]:
        """Return the positions that `peer` acknowledged, and the Unix time of the last ack in ms.

        None means all peers; then a lane may occur more than once.
        On a full disk older acks are returned, which cost some comparisons.
        """
        with contextlib.suppress(StoreError):  # The writer logged it.
            await self._commit.flush()
        return small_rows.acks_of(await self._rows(sql.LOAD_ACKS, conversation, peer))

    async def get_meta(self, key: str, *, is_derived: bool = False) -> bytes | None:
        """Return the small value stored under `key`; None if there is none. Raises ValueDamaged."""
        if is_derived:
            with contextlib.suppress(ValueDamaged):
                return small_rows.value_of(key, await self._rows(sql.GET_META, key))
            return None
        (value,) = await self.get_metas([key])
        if isinstance(value, ValueDamaged):
            raise value
        return value

    async def get_metas(self, keys: Sequence[str]) -> list[bytes | ValueDamaged | None]:
        """Return the small value of each key: None if there is none, the error of a damaged one."""

        def read(reader: sqlite3.Connection) -> list[Rows]:
            every = cache(lambda: reader.execute(sql.ALL_META).fetchall())
            return [reader.execute(sql.GET_META, (key,)).fetchall() or every() for key in keys]

        found = await self._read(read)
        return [_value_or_damage(key, rows) for key, rows in zip(keys, found, strict=True)]

    async def put_meta(self, key: str, value: bytes) -> None:
        """Store a small value under `key`; return once it is durable."""
        await self._commit.write([Statement(sql.PUT_META, [small_rows.value_row(key, value)])])

    async def quarantined(self) -> list[Quarantined]:
        """List the rows that failed their digests and were not deleted since."""
        rows = await self._rows(sql.QUARANTINED)
        return [Quarantined(c, i, bool(b), why.decode()) for c, i, b, why in rows]

    @property
    def quarantined_count(self) -> int:
        """Number of bad rows found since the store was opened."""
        return self._repairs.quarantined_count

    async def _rows(self, text: str, *parameters: object) -> Rows:
        return await self._read(lambda reader: reader.execute(text, parameters).fetchall())

    async def _read(self, work: Callable[[sqlite3.Connection], _Result]) -> _Result:
        if self._closed:
            raise ReplicaClosed
        with typed_errors():
            return await self._reader.run(work)


def _value_or_damage(key: str, rows: Rows) -> bytes | ValueDamaged | None:
    try:
        return small_rows.value_of(key, rows)
    except ValueDamaged as damage:
        return damage


def _require_in_place(path: Path, file: tuple[int, int] | None) -> None:
    """Raise StoreError if what is written is in a file that nobody opens again, or may be."""
    if file_at(path) != file:
        raise StoreError(f"{path} was moved or removed while it was open")


async def _held_of(
    entries: Sequence[Entry], rows: Callable[..., Awaitable[list[tuple[Any, ...]]]]
) -> set[EntryId]:
    """Return the ids of those that are stored."""
    held: set[EntryId] = set()
    for at in range(0, len(entries), sql.IDS_MAX):
        some = entries[at : at + sql.IDS_MAX]
        ids, conversations = (e.id for e in some), (e.conversation for e in some)
        found = await rows(sql.select_held(len(some)), *conversations, *ids)
        held.update(EntryId(one) for (one,) in found)
    return held


async def _reader(path: Path, mark: MarkFile) -> Connection:
    """Open the reader, and note what is lost before anything is written."""
    reader = await schema.connect_checked(path, mark.mark.number)
    if reader is None:
        await schema.recover(path)
        reader = await schema.connect_checked(path, mark.mark.number)
    if reader is None:
        reader = await schema.connect_reader(path)
    try:
        await tail.note_loss(path, mark, reader)
    except BaseException:
        await reader.close()
        raise
    return reader


async def _writer(path: Path, bytes_max: int | None) -> WritingConnection:
    def prepare(connection: sqlite3.Connection) -> None:
        schema.migrate(connection, schema.MIGRATIONS)
        if bytes_max is not None:
            pages = bytes_max // schema.pragma(connection, "page_size")
            connection.execute(f"PRAGMA max_page_count = {pages}")
        sync_folder(path.parent)

    writer = await schema.connect_writer(path)
    try:
        await writer.run(prepare)
    except BaseException:
        await writer.close()
        raise
    return writer


def _without_bodies(loaded: Loaded) -> Loaded:
    """Return `loaded` as a load without `bodies` would."""
    apart = {
        entry.id
        for entry in loaded.entries
        if entry.body is not None and entry.header.kind not in CONTROL_KINDS
    }
    entries = [replace(e, body=None) if e.id in apart else e for e in loaded.entries]
    return Loaded(entries, loaded.lost, frozenset(apart))
