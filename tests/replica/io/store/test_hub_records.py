"""The records of a hub in a real store: one row for each conversation, gone with it."""

from pathlib import Path

import pytest

from replica.ids import ConversationId
from replica.io.store.salvage import repair_store
from replica.io.store.sqlite_pages import PAGE_BYTES
from replica.io.store.store import Store
from tests.support.files import overwrite, query
from tests.support.writers import Writer

LEAF = 10
"""Type of a leaf of a table without row ids."""
ONE, TWO = (ConversationId(Writer(number).genesis().id) for number in (1, 2))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


async def test_a_record_replaces_the_one_before(path: Path) -> None:
    async with await Store.open(path) as store:
        await store.records.write({ONE: b"old", TWO: b"two"})
        await store.records.write({ONE: b"new"})
        assert await store.records.load() == {ONE: b"new", TWO: b"two"}
        await store.records.write({}, [TWO])
        assert await store.records.load() == {ONE: b"new"}


@pytest.mark.parametrize("damage", ["value = x'00'", "value = 5", "checksum = 0"])
async def test_a_damaged_record_is_empty(path: Path, damage: str) -> None:
    async with await Store.open(path) as store:
        await store.records.write({ONE: b"one"})
    query(path, f"UPDATE meta SET {damage}")
    async with await Store.open(path) as store:
        assert await store.records.load() == {ONE: b""}


async def test_a_record_whose_key_is_damaged_is_none(path: Path) -> None:
    async with await Store.open(path) as store:
        await store.records.write({ONE: b"one"})
    query(path, "UPDATE meta SET key = 'record of nothing'")
    async with await Store.open(path) as store:
        assert await store.records.load() == {}


async def test_a_deletion_erases_the_record(path: Path) -> None:
    genesis = Writer(1).genesis()
    async with await Store.open(path) as store:
        await store.append([genesis])
        await store.records.write({ONE: b"one", TWO: b"two"})
        await store.delete(ONE)
        assert await store.records.load() == {TWO: b"two"}


async def test_no_other_value_is_looked_for_among_records(path: Path) -> None:
    async with await Store.open(path) as store:
        await store.put_meta("other", b"value")
        await store.records.write({ONE: b"one"})
        assert await store.records.load() == {ONE: b"one"}
    query(path, f"UPDATE meta SET checksum = 1 WHERE key = 'record of {ONE.hex()}'")
    async with await Store.open(path) as store:
        assert await store.get_meta("other") == b"value"
        assert await store.get_meta("none") is None


async def test_what_an_earlier_version_kept_is_erased(path: Path) -> None:
    async with await Store.open(path) as store:
        await store.put_meta("records of conversations", b"all of them")
        await store.records.drop_earlier()
        assert await store.get_meta("records of conversations") is None


async def test_a_store_made_anew_has_no_records(path: Path) -> None:
    async with await Store.open(path) as store:
        await store.append([Writer(1).genesis()])
        await store.put_meta("other", b"value")
        await store.records.write({ONE: b"one"})
    overwrite(path, 0, bytes(40))
    assert (await repair_store(path)).aside is not None
    async with await Store.open(path) as store:
        assert await store.records.load() == {}
        assert await store.get_meta("other") == b"value"
        assert [stored.conversation for stored in await store.conversations()] == [ONE]


def damage_last_leaf(path: Path) -> None:
    """Damage the last page that holds records alone."""
    data = bytearray(path.read_bytes())
    leaves = [
        at
        for at in range(0, len(data), PAGE_BYTES)
        if data[at] == LEAF and b"record of " in data[at : at + PAGE_BYTES]
    ]
    data[leaves[-1]] = 0xFF
    path.write_bytes(data)


async def test_a_damaged_page_of_records_keeps_no_deletion_from_erasing(path: Path) -> None:
    geneses = [Writer(1, epoch=number + 1).genesis() for number in range(60)]
    async with await Store.open(path) as store:
        await store.append(geneses)
        records = {genesis.conversation: bytes(200) for genesis in geneses}
        assert await store.records.write(records) == {}
    damage_last_leaf(path)
    async with await Store.open(path) as store:
        for genesis in geneses:
            await store.delete(genesis.conversation)
        assert await store.conversations() == []
