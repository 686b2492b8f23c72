"""What can be read of a damaged store, and a new store made of it (spec/04-link §10).

Every entry is verified by its author's signature, so it does not matter in which
state the file around it is. Nothing is deleted: the damaged files are set aside, once
the new store is whole (DECISIONS D224, D405).
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path

from replica.errors import EntryRefused
from replica.ids import ID_BYTES, SIGNATURE_BYTES, ConversationId, EntryId, PublicKey
from replica.io.files import typed_errors
from replica.io.store import high_water, schema, store_files, store_lock
from replica.io.store import statements as sql
from replica.io.store.hub_bringers import bringer_of
from replica.io.store.rows import checksum_of, is_noted
from replica.io.store.small_rows import ERASED, HUB_KEY, RECORD, TOMBSTONES, Row, ids_in
from replica.io.store.sqlite_pages import Pages, Record
from replica.io.store.store import Store
from replica.io.store.tombstones import confirmed, tombstone_of
from replica.io.store.transaction import Statement
from replica.io.store.unfetched import (
    KEY,
    Ends,
    Unfetched,
    decode,
    note_unfetched,
    times_of,
    unfetched_of,
)
from replica.log import CONTROL_KINDS, Entry, codec, send_order, verify_body, verify_signature
from replica.refusals import StoreCorrupt

_CHUNK = 256
"""Entries of one transaction of the new store."""


@dataclass(slots=True)
class Salvaged:
    """What the pages of a damaged store hold."""

    entries: dict[EntryId, Entry] = field(default_factory=dict)
    values: dict[str, bytes] = field(default_factory=dict)
    listed: set[tuple[bytes, bytes]] = field(default_factory=set)
    """Conversation and id of membership entries, as the store lists them a second time."""
    tombstones: set[ConversationId] = field(default_factory=set)
    """Conversations that any version of a tombstone names."""
    damaged_tombstones: set[Row] = field(default_factory=set)
    bringers: dict[ConversationId, PublicKey] = field(default_factory=dict)
    """The keys that brought deleted conversations."""
    set_aside: set[tuple[bytes, bytes]] = field(default_factory=set)
    """Conversation and id of entries in quarantine: the mark counts them, and their copies too."""
    bodies_lost: set[tuple[bytes, bytes]] = field(default_factory=set)
    """Conversation and id of entries whose body was stored, and failed its digest."""

    def receive(self, columns: Record) -> None:
        """Add the row of these columns if its own checks hold."""
        match columns:
            case [bytes(), bytes(), bytes() as header, bytes() as signature, int(), body]:
                self._add_entry(header, signature, body)
            case [bytes() as conversation, bytes() as id_, int() as checksum]:
                if len(id_) == ID_BYTES and checksum == checksum_of(conversation, id_):
                    self.listed.add((conversation, id_))
            case [str() as key, bytes() as value, int() as checksum]:
                if checksum == checksum_of(key.encode(), value):
                    self.values[key] = value
                    if key in TOMBSTONES:
                        self.tombstones |= ids_in(value)
            case [bytes() as of, bytes() as id_, header, _, _, int() as body_only, str(), checksum]:
                if len(id_) == ID_BYTES and is_noted(of, id_, checksum):
                    if body_only:
                        self.bodies_lost.add((of, id_))
                    elif header is not None:  # a note of a gone row may be of an earlier store
                        self.set_aside.add((of, id_))
            case [bytes(), bytes()]:
                if bringer := bringer_of(tuple(columns)):
                    self.bringers[bringer[0]] = bringer[1]
            case [bytes(), int(), int()]:
                if tombstone := tombstone_of(columns):
                    self.tombstones.add(tombstone[0])
                else:
                    self.damaged_tombstones.add(tuple(columns))

    def add_older(self, older: "Salvaged") -> None:
        """Add the entries and tombstones of files that the store has left behind.

        Their values and listings may have been replaced or erased since.
        """
        self.tombstones |= older.tombstones
        self.bringers = older.bringers | self.bringers
        for id_, entry in older.entries.items():
            known = self.entries.get(id_)
            is_erased = ERASED + entry.conversation.hex() in self.values
            if not is_erased and (known is None or known.body is None):
                self.entries[id_] = entry

    def erase_deleted(self) -> None:
        """Drop what is of conversations with a tombstone."""
        gone = self.tombstones
        self.entries = {i: e for i, e in self.entries.items() if e.conversation not in gone}
        self.listed = {one for one in self.listed if one[0] not in gone}

    @property
    def bare(self) -> list[tuple[bytes, bytes]]:
        """Conversation and id of the entries here whose body is lost."""
        held = ((e.conversation, i) for i, e in self.entries.items() if e.body is None)
        return sorted(set(held) & self.bodies_lost)

    @property
    def counted_twice(self) -> int:
        """Number of entries that the mark counts in quarantine, and again since they are back."""
        return sum(id_ in self.entries for _, id_ in self.set_aside)

    def _add_entry(self, header: bytes, signature: bytes, body: object) -> None:
        if len(signature) != SIGNATURE_BYTES or not isinstance(body, bytes | None):
            return
        with suppress(EntryRefused):
            bare = codec.decode_entry(header, signature, None)
            known = self.entries.get(bare.id)
            if known is None:
                verify_signature(bare)
            entry = _with_body(bare, body)
            if body is not None and entry.body is None:
                self.bodies_lost.add((entry.conversation, entry.id))
            is_useful = entry.body is not None or bare.header.kind not in CONTROL_KINDS
            if is_useful and (known is None or known.body is None):
                self.entries[entry.id] = entry


def _with_body(bare: Entry, body: bytes | None) -> Entry:
    whole = Entry(bare.header_bytes, bare.signature, body, bare.id, bare.header)
    try:
        if body is not None:
            verify_body(whole)
    except EntryRefused:
        return bare
    return whole


@dataclass(frozen=True, slots=True)
class StoreRepair:
    """What a repair did to a store."""

    aside: Path | None = None
    """The damaged database, if it was set aside."""
    kept: int = 0
    """Entries that the new store was begun with, or that were added to a sound one."""
    lost: int = 0
    """Entries and tombstones that the mark knows of and that were found nowhere; an estimate."""
    why: str = ""
    deletions_kept: int = 0
    """Tombstones that the new store was begun with, or that were mended or added to a sound one."""
    deletions_lost: int = 0
    """Tombstones of a sound store that were damaged in both tables, and told nothing."""


class _StoreInRepair(Store):
    """A store with the writes that only a repair makes."""

    async def list_members(self, listed: Iterable[tuple[bytes, bytes]]) -> None:
        """List ids of membership entries, so that the loss of one is noticed."""
        rows = [(c, id_, checksum_of(c, id_)) for c, id_ in sorted(listed)]
        if rows:
            await self._commit.write([Statement(sql.LIST, rows)])

    async def note_bodies_lost(self, bare: Iterable[tuple[bytes, bytes]]) -> None:
        """Note in quarantine whose bodies were stored: without it they might never have come."""
        rows = [(c, id_, checksum_of(c, id_)) for c, id_ in bare]
        if rows:
            await self._commit.write([Statement(sql.NOTE_BODY_LOST, rows)])

    async def drop_damaged_values(self) -> None:
        """Drop the small values that fail their checksum, but for keys of hubs."""
        for key, value, checksum in await self._rows(sql.ALL_META):
            is_sound = checksum is None or (
                isinstance(key, bytes)
                and isinstance(value, bytes)
                and checksum == checksum_of(key, value)
            )
            if not is_sound and not bytes(key).startswith(HUB_KEY.encode()):
                drops = (sql.DROP_META, sql.DROP_COPY)
                row = (key, value, checksum)
                await self._commit.write([Statement(drop, [row]) for drop in drops])

    async def erased(self) -> dict[str, bytes]:
        """Return the values that name conversations erased since the end was lost."""
        return {key.decode(errors="replace"): b"" for key, *_ in await self._erased_rows()}

    async def forget_erased(self) -> None:
        """Drop these values: what they were erased from is read no more."""
        if rows := await self._erased_rows():
            await self._commit.write([Statement(sql.DROP_META, rows)])

    async def _erased_rows(self) -> list[tuple[bytes, ...]]:
        rows = await self._rows(sql.ALL_META)
        return [r for r in rows if isinstance(r[0], bytes) and r[0].startswith(ERASED.encode())]

    def forget_losses(self) -> None:
        """Count losses from now on."""
        self._mark.write(replace(self._mark.mark, lost=0))


async def repair_store(path: Path) -> StoreRepair:
    """Make the store usable; return what was done. No other process may hold it.

    A store that reads is left as it is, but for entries of a WAL that SQLite did not read to
    its end. A repair that was cut short is finished, or begun again. Raises StoreLocked or
    StoreError; then what was not replaced yet is as it was.
    """
    with _locked(path):
        is_finished = store_files.is_cut_short(path)
        if is_finished:
            store_files.put_in_place(path)
        store_files.discard_unfinished(path)
    try:
        why = await _damage_of(path)
    except StoreCorrupt as error:
        why = error.detail
    if why:
        return await _rebuild(path, why)
    return await (_report_finished(path) if is_finished else _add_lost_ends(path))


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep other processes from the store. Raises StoreLocked, and OSErrors as StoreError."""
    with typed_errors():
        descriptor = store_lock.lock_name(path)
        try:
            yield
        finally:
            store_lock.unlock(descriptor)


async def _damage_of(path: Path) -> str:
    """Return the damage that SQLite finds; empty if there is none. Raises StoreError."""
    async with await Store.open(path) as store:
        with typed_errors():
            reader = await schema.connect_reader(path)
            try:
                rows = await reader.execute_fetchall("PRAGMA integrity_check(1)")
            finally:
                await reader.close()
        found = bytes(next(iter(rows))[0]).decode(errors="replace")
        if found != "ok":
            return found
        for stored in await store.conversations():
            await store.load(stored.conversation)  # quarantines and refiles
            await store.load_acks(stored.conversation, None)
        await store.get_meta("")  # reads every value
        await store.quarantined()
    return ""


async def _rebuild(path: Path, why: str) -> StoreRepair:
    with _locked(path):
        mark = high_water.read(path) or high_water.Mark()
        found = read_pages((path,), path.parent.glob(f"{path.name}-wal"))
        for end in store_files.lost_ends(path):
            found.add_older(read_pages((path,), (end,)))
        found.erase_deleted()
        lost = mark.stored + mark.lost - len(found.entries) - len(found.tombstones)
        lost = max(0, lost - found.counted_twice)
        unfetched = Unfetched(lost, high_water.written_ms(path), ends=_ends_lost(mark, found))
        try:
            await _write_draft(store_files.draft_of(path), found, unfetched)
            store_files.complete_draft(path)
        except BaseException:
            with suppress(OSError):  # the next repair deletes it
                store_files.discard_unfinished(path)
            raise
        aside = store_files.put_in_place(path)
    return _report(aside, len(found.entries), lost, len(found.tombstones), why)


def _ends_lost(mark: high_water.Mark, found: Salvaged) -> Ends:
    """Return the entries that the mark names and that are not found."""
    named = ((g.conversation, g.id) for g in mark.groups if not g.is_tombstone)
    gone = found.tombstones
    return tuple((c, i) for c, i in named if i not in found.entries and c not in gone)


async def _write_draft(draft: Path, found: Salvaged, unfetched: Unfetched) -> None:
    async with await _StoreInRepair.open(draft) as store:
        await _fill(store, found.entries.values())
        await store.tombstones.put(found.tombstones)
        await store.bringers.put(found.bringers)
        for key, value in found.values.items():
            if key in TOMBSTONES or key.startswith((ERASED, RECORD)):
                continue  # no later repair reads what they were erased from; records are made anew
            await store.put_meta(key, value)
        await store.list_members(found.listed)
        await store.note_bodies_lost(found.bare)
        earlier, times = decode(found.values.get(KEY)), times_of(found.entries.values())
        await note_unfetched(store, unfetched.with_earlier(earlier, times))


def _report(aside: Path, kept: int, lost: int, deleted: int, why: str) -> StoreRepair:
    return StoreRepair(aside if aside.exists() else None, kept, lost, why, deleted)


async def _report_finished(path: Path) -> StoreRepair:
    """Return what the repair that was cut short would have returned."""
    aside = store_files.newest_aside(path) or path
    async with await Store.open(path) as store:
        kept = sum(stored.entries for stored in await store.conversations())
        deleted = len(await store.tombstones.load())
        unfetched = await unfetched_of(store) or Unfetched()
    return _report(aside, kept, unfetched.lost, deleted, "a repair of it was cut short")


async def _add_lost_ends(path: Path) -> StoreRepair:
    kept = deleted = 0
    async with await _StoreInRepair.open(path) as store:
        mended, deletions_lost = await store.tombstones.repair()
        await store.drop_damaged_values()
        lost, written_ms = store.lost_count, high_water.written_ms(path)
        if ends := store_files.lost_ends(path):
            older = Salvaged(values=await store.erased())
            for end in ends:
                older.add_older(read_pages((), (end,)))
            kept, deleted = await _add(store, older)
        if lost > kept + deleted:
            unfetched, earlier = (
                Unfetched(lost - kept - deleted, written_ms),
                await unfetched_of(store),
            )
            times = times_of(await _held(store))
            await note_unfetched(store, unfetched.with_earlier(earlier, times))
        store.forget_losses()
        with typed_errors():
            store_files.set_lost_ends_aside(path)
        await store.forget_erased()
    reasons = ["its end was lost"] if lost else []
    reasons += ["deletions in it were damaged"] if mended or deletions_lost else []
    lost, why = max(0, lost - kept - deleted), " and ".join(reasons)
    return StoreRepair(None, kept, lost, why, mended + deleted, deletions_lost)


async def _add(store: Store, older: Salvaged) -> tuple[int, int]:
    """Add entries and tombstones to a sound store; return the numbers of those added."""
    known = (await store.tombstones.load()).keys()
    # The bytes of these may be there yet, since their erasure was in the lost end too.
    deleted = older.tombstones - known
    await store.tombstones.put(deleted)
    await store.bringers.put({c: key for c, key in older.bringers.items() if c in deleted})
    older.tombstones |= known
    older.erase_deleted()
    held = {entry.id for entry in await _held(store)}
    new = [entry for entry in older.entries.values() if entry.id not in held]
    await _fill(store, new)
    return len(new), len(deleted)


async def _held(store: Store) -> list[Entry]:
    stored = await store.conversations()
    return [e for one in stored for e in (await store.load(one.conversation)).entries]


def read_pages(databases: Iterable[Path], wals: Iterable[Path]) -> Salvaged:
    """Read the pages of these files. Raises StoreError."""
    pages, found = Pages(), Salvaged()
    with typed_errors():
        for database in databases:
            if database.is_file():
                pages.add_database(database)
        for wal in wals:
            pages.add_wal(wal)
    for columns in pages.records():
        found.receive(columns)
    found.tombstones |= confirmed(found.damaged_tombstones)
    return found


async def _fill(store: Store, entries: Iterable[Entry]) -> None:
    by_conversation = sorted(entries, key=lambda e: (e.conversation, send_order(e)))
    for _, group in groupby(by_conversation, key=lambda e: e.conversation):
        for chunk in _chunks(list(group)):
            await store.append(chunk)


def _chunks(entries: list[Entry]) -> Iterator[list[Entry]]:
    for at in range(0, len(entries), _CHUNK):
        yield entries[at : at + _CHUNK]
