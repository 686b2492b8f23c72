"""A start reads no entry of a long log that its last stop left a record of (DECISIONS D387)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from replica.ids import ConversationId
from replica.io.blobs.blobs import Blobs
from replica.io.store.store import Store
from replica.link.messages import Entries
from syncd.hub import Hub
from syncd.io.driver import HubDriver
from syncd.links.listing import item_of, list_of
from syncd.policy import Policy
from syncd.shelves import records
from tests.support.writers import Writer, said

EVE = Writer(7)


@pytest.fixture(autouse=True)
def _long_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "READ_ENTRIES_MAX", 2)


@asynccontextmanager
async def _started(folder: Path) -> AsyncIterator[HubDriver]:
    async with await Store.open(folder / "log.db") as store:
        driver = HubDriver(Hub(Writer(9).public, Policy()), store, Blobs(folder / "blobs"))
        await driver.start()
        yield driver
        await driver.stop()


async def _stored(folder: Path, count: int) -> Writer:
    writer = Writer(1)
    genesis = writer.genesis()
    entries = [genesis]
    for number in range(count):
        entries.append(writer.write(genesis.conversation, said(str(number)), parents=[entries[-1]]))
    async with _started(folder) as driver:
        await driver.push(writer.public, Entries(genesis.conversation, tuple(entries)), dict)
    return writer


def _id() -> ConversationId:
    return ConversationId(Writer(1).genesis().id)


async def test_a_start_after_a_stop_reads_no_entry_of_a_long_log(tmp_path: Path) -> None:
    writer = await _stored(tmp_path, 5)
    async with _started(tmp_path) as driver:
        shelf = driver.hub.shelf
        assert not shelf
        assert shelf.is_known(_id())
        assert list(list_of(shelf, writer.public)) == [_id()]
        listed = item_of(shelf, _id(), writer.public)
        assert not driver.hub.needs_load(EVE.public, _id())
        held = await driver.permitted(writer.public, _id())
        assert len(held.log) == 6
        assert listed == item_of(shelf, _id(), writer.public)
        assert driver.hub.disk.creator(_id()) == writer.public


async def test_a_record_of_a_log_that_went_on_tells_its_members_alone(tmp_path: Path) -> None:
    writer = await _stored(tmp_path, 5)
    async with await Store.open(tmp_path / "log.db") as store:
        last = (await store.load(_id())).entries[-1]
        await store.append([writer.write(_id(), said("more"), parents=[last])])
    async with _started(tmp_path) as driver:
        assert list(list_of(driver.hub.shelf, EVE.public)) == []
        assert next(list_of(driver.hub.shelf, writer.public)) == _id()
        assert len((await driver.permitted(writer.public, _id())).log) == 7
