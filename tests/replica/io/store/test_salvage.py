"""Pages of a damaged store are read one by one, and only what verifies is kept (DECISIONS D224)."""

import random
import shutil
import sqlite3
from dataclasses import dataclass
from pathlib import Path

import pytest

from replica.ids import ConversationId, EntryId, Track
from replica.io.store import store_files
from replica.io.store.salvage import repair_store
from replica.io.store.small_rows import TOMBSTONES
from replica.io.store.sqlite_pages import Pages
from replica.io.store.store import Store
from replica.io.store.unfetched import times_of, unfetched_of
from replica.log.entry import Entry
from replica.refusals import StoreLocked
from tests.replica.io.store.test_high_water import break_frame, killed_after
from tests.support.files import flip_byte, overwrite, query
from tests.support.stories import Story
from tests.support.writers import Writer, said


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "log.db"


def log(count: int, *, seed: int = 1, size: int = 10) -> list[Entry]:
    writer = Writer(seed)
    entries = [writer.genesis()]
    for number in range(count):
        body = said(f"{number}" * size)
        entries.append(writer.write(entries[0].conversation, body, parents=[entries[-1]]))
    return entries


def rows_of(database: Path) -> list[list[object]]:
    pages = Pages()
    pages.add_database(database)
    return [columns for columns in pages.records() if len(columns) == 4]


@pytest.mark.parametrize("size", [0, 1, 400, 1_000, 4_061, 4_062, 5_000, 9_000, 70_000])
def test_records_are_read_as_sqlite_reads_them(tmp_path: Path, size: int) -> None:
    database = tmp_path / "some.db"
    rows = [
        [number, "text é" * number, bytes([number]) * size, -(2 ** (7 * number))]
        for number in range(9)
    ]
    connection = sqlite3.connect(database)
    connection.execute("CREATE TABLE some (a, b, c, d)")
    connection.executemany("INSERT INTO some VALUES (?, ?, ?, ?)", rows)
    connection.commit()
    connection.close()
    found = rows_of(database)
    assert [row for row in rows if row in found] == rows


async def test_all_entries_of_a_file_without_its_first_page_are_kept(path: Path) -> None:
    story = Story(3)
    story.grow(40)
    long = log(6, seed=8, size=30_000)
    async with await Store.open(path) as store:
        await store.append(story.entries)
        await store.append(long)
    overwrite(path, 0, bytes(4096))
    done = await repair_store(path)
    assert (done.kept, done.lost) == (len(story.entries) + len(long), 0)
    async with await Store.open(path) as store:
        for entries in (story.entries, long):
            loaded = await store.load(entries[0].conversation)
            assert {e.id: e.body for e in loaded.entries} == {e.id: e.body for e in entries}
            assert not loaded.lost


async def test_forged_rows_are_not_kept(path: Path) -> None:
    entries = log(5)
    async with await Store.open(path) as store:
        await store.append(entries)
    last, forged = entries[-1], Writer(66).genesis()
    query(path, "UPDATE entries SET signature = ? WHERE id = ?", forged.signature, last.id)
    overwrite(path, 0, b"no longer SQLite")
    done = await repair_store(path)
    assert (done.kept, done.lost) == (len(entries) - 1, 1)


async def test_entries_in_a_wal_are_kept_with_those_of_the_database(path: Path) -> None:
    entries = log(12, size=3_000)
    await killed_after(path, entries)
    for file in (path, path.with_name("log.db-wal")):
        overwrite(file, 0, b"no longer SQLite")
    done = await repair_store(path)
    assert done.kept == len(entries)
    async with await Store.open(path) as store:
        assert (await store.load(entries[0].conversation)).entries == entries


async def test_a_store_in_use_is_not_repaired(path: Path) -> None:
    async with await Store.open(path):
        with pytest.raises(StoreLocked):
            await repair_store(path)


async def test_the_loss_of_a_membership_entry_is_noticed_after_a_repair(path: Path) -> None:
    story = Story(3)
    story.grow(5)
    bad = [e for e in story.entries if e.header.track == Track.MEMBERSHIP][-1]
    async with await Store.open(path) as store:
        await store.append(story.entries)
    query(path, "UPDATE entries SET signature = zeroblob(64) WHERE id = ?", bad.id)
    overwrite(path, 0, b"no longer SQLite")
    await repair_store(path)
    async with await Store.open(path) as store:
        loaded = await store.load(bad.conversation)
    assert bad.id in loaded.lost.membership


@pytest.mark.parametrize("seed", range(8))
async def test_of_a_small_value_the_last_version_is_kept(tmp_path: Path, seed: int) -> None:
    # A value that grows or shrinks moves to another page, of any number.
    rng, values = random.Random(seed), dict[str, bytes]()
    left = tmp_path / "as a kill leaves it" / "log.db"
    entries = iter(log(60, size=2_000))
    async with await Store.open(tmp_path / "data" / "log.db") as store:
        for _ in range(60):
            key = f"value {rng.randrange(8)}"
            values[key] = rng.randbytes(rng.choice((20, 200, 600, 900, 1_500, 5_000)))
            await store.put_meta(key, values[key])
            if rng.random() < 0.3:
                await store.append([next(entries)])
        shutil.copytree(tmp_path / "data", left.parent)
    overwrite(left, 0, bytes(40))
    overwrite(left.with_name("log.db-wal"), 56, bytes(40))
    assert (await repair_store(left)).aside is not None
    async with await Store.open(left) as store:
        assert {key: await store.get_meta(key) for key in values} == values


# --- repairs after repairs ----------------------------------------------------------------


def break_both(path: Path) -> None:
    """Damage a database and its WAL so that SQLite reads neither."""
    overwrite(path, 0, bytes(64))
    overwrite(path.with_name("log.db-wal"), 0, b"no longer SQLite")


@dataclass(frozen=True, slots=True)
class Held:
    """What a store answers."""

    entries: frozenset[EntryId]
    values: tuple[bytes | None, ...]
    deleted: frozenset[ConversationId]
    listed: frozenset[EntryId]
    lost: int


async def held_in(path: Path) -> Held:
    async with await Store.open(path) as store:
        entries: set[EntryId] = set()
        listed: set[EntryId] = set()
        for stored in await store.conversations():
            loaded = await store.load(stored.conversation)
            entries |= {entry.id for entry in loaded.entries}
            listed |= loaded.lost.membership
        values = [await store.get_meta(key) for key in ("pin", "choice")]
        deleted = frozenset(await store.tombstones.load())
        lost = store.lost_count
    return Held(frozenset(entries), tuple(values), deleted, frozenset(listed), lost)


async def test_a_later_repair_brings_back_nothing_that_was_replaced_or_erased(path: Path) -> None:
    first, second, third = (log(4, seed=seed) for seed in (1, 2, 3))
    one, two, three = (entries[0].conversation for entries in (first, second, third))
    await killed_after(path, [*first, *second, *third])
    break_both(path)
    assert (await repair_store(path)).kept == 15
    async with await Store.open(path) as store:
        await store.tombstones.put([one])
        await store.delete(one)
        await store.delete(two)
        await store.put_meta("pin", b"new")
    overwrite(path, 0, bytes(64))
    assert (await repair_store(path)).kept == 5
    held = await held_in(path)
    assert held.values == (b"new", None)
    assert held.deleted == {one}
    async with await Store.open(path) as store:
        assert [stored.conversation for stored in await store.conversations()] == [three]


async def test_tombstones_of_all_versions_are_kept(path: Path) -> None:
    ids = [ConversationId(bytes([number]) * 32) for number in range(3)]
    entries = log(3)
    async with await Store.open(path) as store:
        for one in ids:
            await store.tombstones.put([one])
        await store.append(entries)
        left = path.parent.with_name("left")
        shutil.copytree(path.parent, left)
    # Of the newest version of both tables one row is wrong; an older one is in the WAL too.
    wal = left / "log.db-wal"
    wal.write_bytes(wal.read_bytes().replace(ids[2], bytes(32)))
    overwrite(left / "log.db", 0, bytes(64))
    await repair_store(left / "log.db")
    assert (await held_in(left / "log.db")).deleted == {*ids[:2]}


async def test_tombstones_of_a_store_of_three_steps_are_kept(path: Path) -> None:
    entries, erased = log(3), log(3, seed=2)
    async with await Store.open(path) as store:
        await store.append([*entries, *erased])
        await store.put_meta(TOMBSTONES[0], erased[0].conversation)
    overwrite(path, 0, bytes(64))
    assert (await repair_store(path)).kept == len(entries)
    assert (await held_in(path)).deleted == {erased[0].conversation}


async def test_a_deletion_in_the_lost_end_of_a_store_is_kept(path: Path) -> None:
    entries, later = log(3), log(3, seed=2)
    async with await Store.open(path) as store:
        await store.append(entries)
    async with await Store.open(path) as store:
        await store.append(later[:1])
        await store.tombstones.put([entries[0].conversation])
        await store.append(later[1:])
        left = path.parent.with_name("left") / "log.db"
        shutil.copytree(path.parent, left.parent)
    overwrite(left.with_name("log.db-wal"), 32 + 24 + 2_000, b"wrong")
    done = await repair_store(left)
    assert (done.kept, done.lost) == (len(later), 0)
    assert (await held_in(left)).deleted == {entries[0].conversation}


async def test_a_wal_that_is_not_needed_is_kept_aside(path: Path) -> None:
    entries = log(8)
    await killed_after(path, entries)
    break_frame(path, 4)
    await repair_store(path)
    aside = path.with_name("log.db.damaged-1.lost-1-wal")
    before = aside.read_bytes()
    for _ in range(2):
        assert not (await repair_store(path)).why
    assert aside.read_bytes() == before
    assert store_files.lost_ends(path) == []


@pytest.mark.parametrize("is_rebuilt", [False, True])
async def test_what_was_erased_is_not_taken_from_the_lost_end(path: Path, is_rebuilt: bool) -> None:
    entries = log(8)
    await killed_after(path, entries)
    break_frame(path, 4)
    async with await Store.open(path) as store:
        assert store.lost_count
        await store.delete(entries[0].conversation)
        await store.put_meta("pin", b"kept")
    if is_rebuilt:
        overwrite(path, 0, bytes(64))
    assert (await repair_store(path)).kept == 0
    held = await held_in(path)
    assert (held.entries, held.values) == (frozenset(), (b"kept", None))
    async with await Store.open(path) as store:
        await store.append(entries)
    overwrite(path, 0, bytes(64))
    assert (await repair_store(path)).kept == len(entries)


# --- what is not back -----------------------------------------------------------------------


async def test_an_entry_that_came_again_after_a_quarantine_is_no_loss(path: Path) -> None:
    entries = log(5)
    async with await Store.open(path) as store:
        await store.append(entries)
    query(path, "UPDATE entries SET signature = zeroblob(64) WHERE id = ?", entries[3].id)
    async with await Store.open(path) as store:
        await store.load(entries[0].conversation)
        await store.append([entries[3]])
        assert len(await store.quarantined()) == 1
    overwrite(path, 0, bytes(64))
    done = await repair_store(path)
    assert (done.kept, done.lost) == (len(entries), 0)


@pytest.mark.parametrize("is_noted_before", [False, True])
async def test_a_new_store_knows_whose_bodies_were_lost(path: Path, is_noted_before: bool) -> None:
    entries = log(5, size=100)
    async with await Store.open(path) as store:
        await store.append(entries)
    body = entries[3].body
    assert body is not None
    flip_byte(path, body)
    if is_noted_before:
        async with await Store.open(path) as store:
            await store.load(entries[0].conversation)
    overwrite(path, 0, bytes(64))
    assert (await repair_store(path)).kept == len(entries)
    async with await Store.open(path) as store:
        assert {(row.id, row.body_only) for row in await store.quarantined()} == {
            (entries[3].id, True)
        }


def empty(path: Path) -> None:
    """Leave nothing of a closed store but its mark."""
    path.write_bytes(b"")


async def test_a_new_store_notes_how_many_entries_are_not_back(path: Path) -> None:
    first, second = log(4), log(2, seed=2)
    async with await Store.open(path) as store:
        await store.append(first)
        await store.append(second)
    empty(path)
    await repair_store(path)
    async with await Store.open(path) as store:
        await store.append(first)
        note = await unfetched_of(store)
    assert note is not None
    left = note.without(times_of(first))
    assert (left.lost, left.ends) == (len(second), ((second[-1].conversation, second[-1].id),))
