"""A store knows its own epochs when it is opened again."""

import sqlite3
from contextlib import closing
from pathlib import Path

from structlog.testing import capture_logs

from replica.conversation import CHANCE_BYTES
from replica.io.driver.epoch_secret import store_epochs
from replica.io.store.store import Store

CHANCE = bytes(range(CHANCE_BYTES))


async def made_by(path: Path) -> int:
    async with await Store.open(path) as store:
        return (await store_epochs(store)).new(CHANCE)


async def test_the_epochs_of_a_store_are_its_own_at_the_next_opening(tmp_path: Path) -> None:
    epoch, other = await made_by(tmp_path / "one.db"), await made_by(tmp_path / "other.db")
    assert epoch != other
    async with await Store.open(tmp_path / "one.db") as store:
        epochs = await store_epochs(store)
    assert (epochs.is_own(epoch), epochs.is_own(other)) == (True, False)


async def test_a_damaged_secret_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    epoch = await made_by(path)
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("UPDATE meta SET value = zeroblob(16) WHERE key = 'epoch secret'")
    async with await Store.open(path) as store:
        assert not (await store_epochs(store)).is_own(epoch)
    assert await made_by(path) == await made_by(path)


async def test_without_room_for_a_secret_the_store_opens_and_says_so(tmp_path: Path) -> None:
    async with await Store.open(tmp_path / "log.db") as store:
        with closing(sqlite3.connect(tmp_path / "log.db")) as raw, raw:
            raw.execute(
                "CREATE TRIGGER full BEFORE INSERT ON meta BEGIN SELECT RAISE(FAIL, 'full'); END"
            )
        with capture_logs() as logs:
            epochs = await store_epochs(store)
        assert epochs.is_own(epochs.new(CHANCE))
        assert [line["event"] for line in logs][-1:] == ["no epoch goes on later"]
