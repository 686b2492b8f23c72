"""Tombstones: a row each in two tables, neither of which is needed (spec/04-link §9)."""

import asyncio
import shutil
from pathlib import Path

import pytest

from replica.ids import ID_BYTES, ConversationId
from replica.io.store import schema
from replica.io.store.readonly import open_read_only
from replica.io.store.salvage import repair_store
from replica.io.store.small_rows import TOMBSTONES, value_row
from replica.io.store.store import Store
from replica.io.store.tombstones import tombstone_of
from replica.log.entry import Entry
from replica.refusals import StoreError, ValueDamaged
from tests.replica.io.store.test_salvage import log
from tests.support.files import file_size_limit, overwrite, query

ONE, TWO, THREE = (ConversationId(bytes([n]) * 32) for n in (1, 2, 3))
TABLES = ("tombstones", "tombstones_again")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log" / "log.db"


async def stored(path: Path, *conversations: ConversationId) -> None:
    async with await Store.open(path) as store:
        await store.tombstones.put(conversations)


async def loaded(path: Path) -> dict[ConversationId, bool]:
    async with await Store.open(path) as store:
        return await store.tombstones.load()


def rows(path: Path, table: str) -> set[tuple[object, ...]]:
    """Return the sound rows of a table."""
    return {row for row in query(path, f"SELECT * FROM {table}") if tombstone_of(row)}


async def test_a_tombstone_costs_the_same_beside_many(path: Path) -> None:
    await stored(path, *(ConversationId(n.to_bytes(32)) for n in range(5_000)))
    async with await Store.open(path) as store:
        await store.tombstones.put([ONE])
        assert path.with_name("log.db-wal").stat().st_size < 10 * 4_096
        assert len(await store.tombstones.load()) == 5_001


async def test_tombstones_that_are_stored_at_once_are_all_kept(path: Path) -> None:
    ids = [ConversationId(bytes([n]) * 32) for n in range(20)]
    async with await Store.open(path) as store:
        await asyncio.gather(*(store.tombstones.put([one]) for one in ids))
        assert await store.tombstones.load() == dict.fromkeys(ids, False)


async def test_a_tombstone_is_in_both_tables_or_in_neither(path: Path) -> None:
    async with await Store.open(path) as store:
        await store.tombstones.put([ONE])
        many = [ConversationId(n.to_bytes(32)) for n in range(20_000)]
        with file_size_limit(1_000_000), pytest.raises(StoreError):
            await store.tombstones.put(many)
        assert await store.tombstones.load() == {ONE: False}
    assert rows(path, TABLES[0]) == rows(path, TABLES[1])


async def test_a_deletion_is_finished_once_that_is_noted(path: Path) -> None:
    await stored(path, ONE, TWO, THREE)
    async with await Store.open(path) as store:
        await store.tombstones.finish([ONE])
        await store.delete(TWO, finishes=True)
        await store.delete(THREE)
        assert await store.tombstones.load() == {ONE: True, TWO: True, THREE: False}


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM {}",
        "UPDATE {} SET finished = 1",
        "UPDATE {} SET checksum = checksum + 1",
        "UPDATE {} SET conversation = x'00'",
        "UPDATE {} SET conversation = CAST('text' AS TEXT)",
        "UPDATE {} SET finished = 'text'",
        "UPDATE {} SET finished = 0.5",
    ],
)
async def test_a_damaged_row_is_written_anew_from_the_other(
    path: Path, table: str, damage: str
) -> None:
    await stored(path, ONE)
    before = rows(path, table)
    query(path, damage.format(table))
    for _ in range(2):  # what is left of a damaged key does no harm
        assert await loaded(path) == {ONE: False}
        assert rows(path, TABLES[0]) == rows(path, TABLES[1]) == before
    await repair_store(path)
    assert set(query(path, f"SELECT * FROM {table}")) == before


async def test_rows_of_different_tombstones_may_be_damaged_in_either_table(path: Path) -> None:
    await stored(path, ONE, TWO)
    query(path, f"UPDATE {TABLES[0]} SET checksum = 1 WHERE conversation = ?", ONE)
    query(path, f"UPDATE {TABLES[1]} SET checksum = 1 WHERE conversation = ?", TWO)
    assert await loaded(path) == {ONE: False, TWO: False}


async def test_rows_that_damage_invented_in_one_table_are_no_tombstones(path: Path) -> None:
    await stored(path, ONE)
    query(path, f"INSERT INTO {TABLES[0]} VALUES (x'00', 7, 7)")
    assert await loaded(path) == {ONE: False}


@pytest.mark.parametrize("damage", ["conversation = x'00'", "checksum = 1"])
async def test_what_a_mended_row_left_behind_counts_for_nothing(path: Path, damage: str) -> None:
    await stored(path, ONE, TWO, THREE)
    for table, damaged in zip(TABLES, (ONE, TWO), strict=True):
        query(path, f"UPDATE {table} SET {damage} WHERE conversation = ?", damaged)
        for _ in range(2):
            assert await loaded(path) == dict.fromkeys((ONE, TWO, THREE), False)


async def test_a_mended_row_hides_no_tombstone_that_is_damaged_in_both_tables(path: Path) -> None:
    await stored(path, ONE, TWO)
    query(path, f"UPDATE {TABLES[0]} SET conversation = x'00' WHERE conversation = ?", ONE)
    for table in TABLES:
        query(path, f"UPDATE {table} SET conversation = x'01', checksum = 1 WHERE conversation = ?",
              TWO)  # fmt: skip
    with pytest.raises(ValueDamaged, match="both rows"):
        await loaded(path)


@pytest.mark.parametrize("damages", [("checksum = 1",) * 2, ("checksum = 1", "conversation = x''")])
async def test_a_repair_keeps_a_deletion_that_both_rows_confirm(
    path: Path, damages: tuple[str, str]
) -> None:
    await stored(path, ONE, TWO)
    for table, damage in zip(TABLES, damages, strict=True):
        query(path, f"UPDATE {table} SET {damage} WHERE conversation = ?", ONE)
    with pytest.raises(ValueDamaged, match=f"both rows of a tombstone in {path.parent}"):
        await loaded(path)
    done = await repair_store(path)
    assert (done.deletions_kept, done.deletions_lost) == (1, 0)
    assert done.why == "deletions in it were damaged"
    assert await loaded(path) == {ONE: False, TWO: False}


@pytest.mark.parametrize("parts", [("key", "checksum"), ("checksum", "key"), ("key", "key")])
async def test_a_repair_that_rebuilds_keeps_a_deletion_that_a_row_confirms(
    path: Path, parts: tuple[str, str]
) -> None:
    # The bit of a key puts the table out of order, so SQLite calls the file damaged.
    ids = [ConversationId(bytes([n]) * 32) for n in range(10, 20)]
    await stored(path, *ids)
    content = await asyncio.to_thread(path.read_bytes)
    first = content.index(ids[4])
    places = (first, content.index(ids[4], first + 1))
    for at, part, bit in zip(places, parts, (0x40, 0x20), strict=True):
        place = at if part == "key" else at + ID_BYTES + 1
        overwrite(path, place, bytes([content[place] ^ bit]))
    with pytest.raises(ValueDamaged, match="both rows"):
        await loaded(path)
    done = await repair_store(path)
    assert done.aside is not None
    is_legible = parts != ("key", "key")
    assert (done.deletions_kept, done.lost) == ((10, 0) if is_legible else (9, 1))
    assert (ids[4] in await loaded(path)) == is_legible


async def test_a_damaged_row_is_not_confirmed_by_an_older_copy_of_it(path: Path) -> None:
    await stored(path, ONE, TWO)
    for number, table in enumerate(TABLES):
        query(path, f"UPDATE {table} SET conversation = ?, checksum = 1 WHERE conversation = ?",
              bytes([9 + number]) * 32, ONE)  # fmt: skip
    async with await Store.open(path) as store:
        await store.put_meta("makes", b"a WAL")
        await store.tombstones.put([THREE])
        left = path.with_name("left.db")
        for ending in ("", "-wal"):
            shutil.copyfile(f"{path}{ending}", f"{left}{ending}")
    overwrite(left, 0, bytes(40))
    assert (await repair_store(left)).aside is not None
    assert await loaded(left) == {TWO: False, THREE: False}


async def test_a_deletion_that_is_damaged_in_both_tables_is_lost_and_said(path: Path) -> None:
    await stored(path, ONE, TWO)
    for number, table in enumerate(TABLES):
        query(path, f"UPDATE {table} SET conversation = ?, checksum = 1 WHERE conversation = ?",
              bytes([number]), ONE)  # fmt: skip
    with pytest.raises(ValueDamaged, match="both rows"):
        await loaded(path)
    done = await repair_store(path)
    assert (done.deletions_kept, done.deletions_lost) == (0, 1)
    assert await loaded(path) == {TWO: False}


async def test_a_deletion_that_a_repair_has_reported_as_lost_is_not_missed_again(
    path: Path,
) -> None:
    entries = log(3)
    async with await Store.open(path) as store:
        await store.append(entries)
    await stored(path, TWO)
    await stored(path, ONE)
    damages = ("checksum = 1", "conversation = x'', checksum = 2")
    for table, damage in zip(TABLES, damages, strict=True):
        query(path, f"UPDATE {table} SET {damage} WHERE conversation = ?", ONE)
    assert (await repair_store(path)).deletions_lost == 1
    async with await Store.open(path) as store:
        assert store.lost_count == 0
    overwrite(path, 0, b"no longer SQLite")
    done = await repair_store(path)
    assert (done.kept, done.deletions_kept, done.lost) == (len(entries), 1, 0)


async def test_a_deletion_counts_as_finished_only_if_both_rows_say_so(path: Path) -> None:
    await stored(path, ONE)
    (begun,) = rows(path, TABLES[1])
    async with await Store.open(path) as store:
        await store.tombstones.finish([ONE])
    query(path, f"INSERT OR REPLACE INTO {TABLES[1]} VALUES (?, ?, ?)", *begun)
    assert await loaded(path) == {ONE: False}


@pytest.mark.parametrize("damaged", [(), ("meta",), ("copies",)])
async def test_the_values_of_a_store_of_three_steps_become_rows(
    path: Path, damaged: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = log(3)
    await with_values(path, ONE + TWO, entries, monkeypatch)
    for table in damaged:
        query(path, f"UPDATE {table} SET checksum = 1")
    async with open_read_only(path) as reading:
        assert (await reading.load(entries[0].conversation)).entries == entries
    async with await Store.open(path) as store:
        await store.tombstones.put([THREE])  # as after a repair, which found more
        await store.tombstones.finish([THREE])
        expected = {ONE: False, TWO: False, THREE: True}
        assert await store.tombstones.load() == expected
        await store.tombstones.finish([ONE, TWO])
    assert await loaded(path) == dict.fromkeys(expected, True)
    assert not query(path, "SELECT 1 FROM meta UNION ALL SELECT 1 FROM copies")


async def test_two_damaged_values_of_a_store_of_three_steps_are_said(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await with_values(path, ONE, [], monkeypatch)
    for table in ("meta", "copies"):
        query(path, f"UPDATE {table} SET checksum = 1")
    with pytest.raises(ValueDamaged):
        await loaded(path)


@pytest.mark.parametrize("other", ["DELETE FROM copies", "UPDATE copies SET checksum = 1"])
async def test_values_of_a_store_of_three_steps_of_which_none_is_sound_are_lost_and_said(
    path: Path, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await with_values(path, ONE + TWO, [], monkeypatch)
    query(path, "UPDATE meta SET checksum = 1")
    query(path, other)
    with pytest.raises(ValueDamaged):
        await loaded(path)
    assert (await repair_store(path)).deletions_lost == 2
    assert await loaded(path) == {}


async def with_values(
    path: Path, ids: bytes, entries: list[Entry], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leave a store of three steps, whose tombstones are two values."""
    with monkeypatch.context() as patched:
        patched.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:3])
        async with await Store.open(path) as store:
            await store.append(entries)
        for table, key in zip(("meta", "copies"), TOMBSTONES, strict=True):
            query(path, f"INSERT INTO {table} VALUES (?, ?, ?)", *value_row(key, ids))
        assert not query(path, "SELECT 1 FROM sqlite_schema WHERE name = 'tombstones'")
