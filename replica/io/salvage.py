"""What can be read of a damaged store, and a new store made of it (spec/04-link §10).

Every entry is verified by its author's signature, so it does not matter in which
state the file around it is. Nothing is deleted: the damaged files are set aside.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path

from replica.errors import EntryRefused
from replica.ids import ID_BYTES, SIGNATURE_BYTES, EntryId
from replica.io import high_water, schema
from replica.io import statements as sql
from replica.io.disk import set_aside, typed_errors
from replica.io.rows import checksum_of
from replica.io.small_rows import HUB_KEY
from replica.io.sqlite_pages import Pages, Record
from replica.io.store import Store
from replica.io.transaction import Statement
from replica.log import CONTROL_KINDS, Entry, codec, send_order, verify_body, verify_signature
from replica.refusals import StoreCorrupt

_SUFFIXES = ("", "-wal", "-shm", "-journal", ".mark")
_CHUNK = 256
"""Entries of one transaction of the new store."""


@dataclass(slots=True)
class Salvaged:
    """What the pages of a damaged store hold."""

    entries: dict[EntryId, Entry] = field(default_factory=dict)
    values: dict[str, bytes] = field(default_factory=dict)
    listed: set[tuple[bytes, bytes]] = field(default_factory=set)
    """Conversation and id of membership entries, as the store lists them a second time."""

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

    def _add_entry(self, header: bytes, signature: bytes, body: object) -> None:
        if len(signature) != SIGNATURE_BYTES or not isinstance(body, bytes | None):
            return
        with suppress(EntryRefused):
            bare = codec.decode_entry(header, signature, None)
            known = self.entries.get(bare.id)
            if known is None:
                verify_signature(bare)
            entry = _with_body(bare, body)
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
    """Entries that the mark knows of and that were found nowhere; an estimate."""
    why: str = ""


class _StoreInRepair(Store):
    """A store with the writes that only a repair makes."""

    async def list_members(self, listed: Iterable[tuple[bytes, bytes]]) -> None:
        """List ids of membership entries, so that the loss of one is noticed."""
        rows = [(c, id_, checksum_of(c, id_)) for c, id_ in sorted(listed)]
        if rows:
            await self._commit.write([Statement(sql.LIST, rows)])

    async def drop_damaged_values(self) -> None:
        """Drop the small values that fail their checksum, but for keys of hubs."""
        for key, value, checksum in await self._rows(sql.ALL_META):
            is_sound = checksum is None or (
                isinstance(key, bytes)
                and isinstance(value, bytes)
                and checksum == checksum_of(key, value)
            )
            if not is_sound and not bytes(key).startswith(HUB_KEY.encode()):
                await self._commit.write([Statement(sql.DROP_META, [(key, value, checksum)])])

    def forget_losses(self) -> None:
        """Count losses from now on."""
        self._mark.write(replace(self._mark.mark, lost=0))


async def repair_store(path: Path) -> StoreRepair:
    """Make the store usable; return what was done. No other process may hold it.

    A store that reads is left as it is, but for entries found in a WAL that was set
    aside. Raises StoreLocked or StoreError.
    """
    mark = high_water.read(path) or high_water.Mark()
    try:
        why = await _damage_of(path)
    except StoreCorrupt as error:
        why = error.detail
    if why:
        return await _rebuild(path, mark, why)
    return await _add_from_wals(path)


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


async def _rebuild(path: Path, mark: high_water.Mark, why: str) -> StoreRepair:
    found = _read_pages(path, (path,))
    aside = None
    for suffix in _SUFFIXES:
        file = path.with_name(f"{path.name}{suffix}")
        if file.exists():
            moved = set_aside(file)
            aside = aside if suffix else moved
    async with await _StoreInRepair.open(path) as store:
        await _fill(store, found.entries.values())
        for key, value in found.values.items():
            await store.put_meta(key, value)
        await store.list_members(found.listed)
    return StoreRepair(aside, len(found.entries), max(0, mark.stored - len(found.entries)), why)


async def _add_from_wals(path: Path) -> StoreRepair:
    wals = sorted(path.parent.glob(f"{path.name}-wal.damaged-*"))
    lost = kept = 0
    async with await _StoreInRepair.open(path) as store:
        await store.drop_damaged_values()
        lost = store.lost_count
        if lost:
            found = _read_pages(path, ())
            held: set[EntryId] = set()
            for stored in await store.conversations():
                held |= {e.id for e in (await store.load(stored.conversation)).entries}
            new = [entry for entry in found.entries.values() if entry.id not in held]
            await _fill(store, new)
            kept = len(new)
        store.forget_losses()
    for wal in wals if kept >= lost else ():
        wal.unlink()
    return StoreRepair(None, kept, max(0, lost - kept), "its end was lost" if lost else "")


def _read_pages(path: Path, databases: Iterable[Path]) -> Salvaged:
    """Read the pages of these databases and of all WALs beside `path`."""
    pages, found = Pages(), Salvaged()
    with typed_errors():
        for database in databases:
            if database.exists():
                pages.add_database(database)
        for wal in sorted(path.parent.glob(f"{path.name}-wal*")):
            pages.add_wal(wal)
    for columns in pages.records():
        found.receive(columns)
    return found


async def _fill(store: Store, entries: Iterable[Entry]) -> None:
    by_conversation = sorted(entries, key=lambda e: (e.conversation, send_order(e)))
    for _, group in groupby(by_conversation, key=lambda e: e.conversation):
        for chunk in _chunks(list(group)):
            await store.append(chunk)


def _chunks(entries: list[Entry]) -> Iterator[list[Entry]]:
    for at in range(0, len(entries), _CHUNK):
        yield entries[at : at + _CHUNK]
