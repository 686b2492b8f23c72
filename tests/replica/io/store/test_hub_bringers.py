"""The bringers of deleted conversations in a real store; none of them is needed."""

from pathlib import Path

import pytest

from replica.ids import ConversationId, PublicKey
from replica.io.store import schema
from replica.io.store.hub_bringers import bringer_of
from replica.io.store.salvage import repair_store
from replica.io.store.store import Store
from tests.replica.io.store.test_salvage import log
from tests.support.files import damage_root, full_disk, overwrite, query
from tests.support.writers import Writer

ONE, TWO, THREE = (ConversationId(bytes([number]) * 32) for number in (1, 2, 3))
ADA, BOB = Writer(1).public, Writer(2).public


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log" / "log.db"


async def _loaded(path: Path) -> dict[ConversationId, PublicKey]:
    async with await Store.open(path) as store:
        return await store.bringers.load()


async def test_they_are_there_after_a_restart(path: Path) -> None:
    async with await Store.open(path) as store:
        await store.bringers.put({})
        await store.bringers.put({ONE: ADA, TWO: BOB})
        await store.bringers.put({THREE: ADA})
    assert await _loaded(path) == {ONE: ADA, TWO: BOB, THREE: ADA}


@pytest.mark.parametrize(
    "row", [(ONE, ADA[:-1]), (ONE[:-1], ADA), (ONE, 5), ("one", ADA), (ONE,), (ONE, ADA, 1)]
)
def test_a_damaged_row_is_none(row: tuple[object, ...]) -> None:
    assert bringer_of((ONE, ADA)) == (ONE, ADA)
    assert bringer_of(row) is None


async def test_damaged_rows_are_left_out(path: Path) -> None:
    async with await Store.open(path) as store:
        await store.bringers.put({ONE: ADA, TWO: BOB})
    query(path, f"UPDATE bringers SET bringer = 5 WHERE conversation = x'{ONE.hex()}'")
    assert await _loaded(path) == {TWO: BOB}


async def test_a_damaged_page_and_a_full_disk_cost_nothing_else(path: Path) -> None:
    async with await Store.open(path) as store:
        await store.bringers.put({ONE: ADA})
        async with full_disk(store):
            await store.bringers.put({ConversationId(n.to_bytes(32)): BOB for n in range(100)})
        assert await store.bringers.load() == {ONE: ADA}
    damage_root(path, "bringers")
    async with await Store.open(path) as store:
        assert await store.bringers.load() == {}
        await store.bringers.put({TWO: BOB})
        await store.append(log(2))
        await store.tombstones.put([THREE])
        assert await store.tombstones.load() == {THREE: False}


async def test_a_repair_keeps_them(path: Path) -> None:
    async with await Store.open(path) as store:
        await store.append(log(2))
        await store.tombstones.put([ONE])
        await store.bringers.put({ONE: ADA})
    overwrite(path, 0, bytes(64))
    await repair_store(path)
    assert await _loaded(path) == {ONE: ADA}


async def test_a_store_of_five_steps_gets_the_table(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:5])
        async with await Store.open(path) as store:
            await store.tombstones.put([ONE])
    assert await _loaded(path) == {}
    async with await Store.open(path) as store:
        await store.bringers.put({ONE: ADA})
        assert await store.tombstones.load() == {ONE: False}
    assert await _loaded(path) == {ONE: ADA}
