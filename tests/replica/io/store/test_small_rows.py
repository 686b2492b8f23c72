"""Rows that no digest covers: each fails alone (LINK-63)."""

import random
from pathlib import Path

import pytest

from replica.errors import AntiphonError
from replica.ids import ConversationId, Lane, Position, PublicKey
from replica.io.calls.hub_calls import pin, pinned_key
from replica.io.store.store import Store
from replica.refusals import PinDamaged, ValueDamaged
from tests.support.files import query
from tests.support.writers import Writer

ID = ConversationId(b"c" * 32)
HUB, KEY = Writer(8).public, Writer(9).public
LANES = [Lane(PublicKey(bytes([n]) * 32), n, 1) for n in range(3)]
ACKED = [Position(lane, 7, b"i" * 32) for lane in LANES]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


def flip(path: Path, table: str, column: str, row: int, chance: random.Random) -> None:
    """Flip one bit of a column, keeping its type."""
    key = "lane" if table == "acks" else "key"
    names, values = zip(
        *query(path, f"SELECT {key}, {column} FROM {table} ORDER BY {key}"), strict=True
    )
    value = values[row]
    if isinstance(value, int):
        changed: object = value ^ 1 << chance.randrange(31)
    else:
        data = bytearray(value.encode() if isinstance(value, str) else value)
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(7)
        changed = data.decode(errors="replace") if isinstance(value, str) else bytes(data)
    query(path, f"UPDATE {table} SET {column} = ? WHERE {key} = ?", changed, names[row])


@pytest.mark.parametrize("column", ["lane", "head", "acked_ms", "checksum"])
async def test_a_flipped_byte_of_an_ack_costs_that_ack_alone(path: Path, column: str) -> None:
    async with await Store.open(path) as store:
        store.save_acks(ID, HUB, ACKED, 1_000)
    flip(path, "acks", column, 1, random.Random(3))
    async with await Store.open(path) as store:
        positions, acked_ms = await store.load_acks(ID, HUB)
    assert set(positions) == {ACKED[0], ACKED[2]}
    assert acked_ms == 1_000


async def test_an_ack_of_another_type_or_length_is_dropped(path: Path) -> None:
    async with await Store.open(path) as store:
        store.save_acks(ID, HUB, ACKED, 1_000)
    query(path, "UPDATE acks SET head = 'text' WHERE lane = (SELECT min(lane) FROM acks)")
    query(path, "UPDATE acks SET lane = x'00' WHERE lane = (SELECT max(lane) FROM acks)")
    async with await Store.open(path) as store:
        assert (await store.load_acks(ID, HUB))[0] == (ACKED[1],)


async def test_a_value_is_found_though_its_key_is_damaged(path: Path) -> None:
    async with await Store.open(path) as store:
        await pin(store, "127.0.0.1:1", KEY)
    query(path, "UPDATE meta SET key = 'hub kez 127.0.0.1:1'")
    async with await Store.open(path) as store:
        assert await pinned_key(store, "127.0.0.1:1") == KEY
        assert await pinned_key(store, "127.0.0.1:2") is None


@pytest.mark.parametrize("column", ["value", "checksum"])
async def test_a_damaged_value_is_refused_and_the_others_are_not(path: Path, column: str) -> None:
    async with await Store.open(path) as store:
        await store.put_meta("a", b"one")
        await store.put_meta("b", b"two")
        await pin(store, "127.0.0.1:1", KEY)
    flip(path, "meta", column, 0, random.Random(1))
    flip(path, "meta", column, 2, random.Random(1))
    async with await Store.open(path) as store:
        with pytest.raises(ValueDamaged):
            await store.get_meta("a")
        assert await store.get_meta("b") == b"two"
        damage, absent, two = await store.get_metas(["a", "c", "b"])
        assert (type(damage), absent, two) == (ValueDamaged, None, b"two")
        with pytest.raises(PinDamaged) as refused:
            await pinned_key(store, "127.0.0.1:1")
        assert "antiphon hub trust" in refused.value.next_step
        assert isinstance(refused.value, AntiphonError)
        await store.put_meta("a", b"again")
        assert await store.get_meta("a") == b"again"
