"""A deletion is durable or did not happen, whatever the disk refuses and whoever hangs up."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from antiphon.v1 import sync_pb2
from replica.errors import StoreError
from replica.ids import ConversationId
from replica.io import Store
from replica.refusals import StoreFull
from syncd.io.config import HubConfig
from syncd.io.server import start
from syncd.io.tombstones import Tombstones
from tests.support.callers import ServedHub, refused, serve_hub, until
from tests.support.files import file_size_limit

ONE, TWO, THREE = (ConversationId(bytes([n]) * 32) for n in (1, 2, 3))


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[ServedHub]:
    async with serve_hub(tmp_path) as built:
        yield built


def delete(served: ServedHub) -> "grpc.aio.UnaryUnaryCall[object, sync_pb2.DeleteResponse]":
    request = sync_pb2.DeleteRequest(conversation=served.id)
    return served.owner.sync.Delete(request, metadata=served.owner.metadata)


async def full(*_row: object) -> None:
    raise StoreFull


async def restarted(folder: Path, served: ServedHub) -> int:
    """Start a hub again in its folder; return how many entries of the conversation it has."""
    hub = await start(HubConfig(data_dir=folder / "hub", listen="127.0.0.1:0"))
    try:
        held = hub.driver.hub.shelf.get(served.id)
        return len(held.log) if held is not None else 0
    finally:
        await hub.stop()


async def test_a_deletion_that_the_disk_refuses_deletes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve_hub(tmp_path) as served:
        driver = served.hub.driver
        used = driver.hub.disk.total
        with monkeypatch.context() as patched:
            patched.setattr(driver.store, "put_meta", full)
            assert await refused(delete(served)) == "STORE_FULL"
        assert driver.hub.disk.total == used
        await served.say("acknowledged after the refusal")
    assert await restarted(tmp_path, served) == len(served.entries)


async def test_a_value_and_its_copy_are_stored_together_or_not_at_all(tmp_path: Path) -> None:
    async with await Store.open(tmp_path / "log" / "log.db") as store:
        with file_size_limit(3_000_000), pytest.raises(StoreError):
            await store.put_meta("first", bytes(2_000_000), "second")
        assert [await store.get_meta(key) for key in ("first", "second")] == [None, None]


async def test_a_tombstone_that_was_refused_is_not_written_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await Store.open(tmp_path / "log" / "log.db") as store:
        tombstones, put = Tombstones(store), store.put_meta

        await tombstones.add(THREE)
        monkeypatch.setattr(store, "put_meta", full)
        with pytest.raises(StoreFull):
            await tombstones.add(ONE)
        monkeypatch.setattr(store, "put_meta", put)
        await asyncio.gather(tombstones.add(TWO), tombstones.add(TWO))
        assert await Tombstones(store).load() == {TWO, THREE}


async def test_deletions_at_once_are_all_kept(tmp_path: Path) -> None:
    ids = [ConversationId(bytes([n]) * 32) for n in range(20)]
    async with await Store.open(tmp_path / "log" / "log.db") as store:
        tombstones = Tombstones(store)
        await asyncio.gather(*map(tombstones.add, ids))
        assert await Tombstones(store).load() == set(ids)


async def test_a_deletion_goes_on_without_its_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve_hub(tmp_path) as served:
        store, begun, may_go = served.hub.driver.store, asyncio.Event(), asyncio.Event()
        put = store.put_meta

        async def slowly(key: str, value: bytes, *copies: str) -> None:
            begun.set()
            await may_go.wait()
            await put(key, value, *copies)

        monkeypatch.setattr(store, "put_meta", slowly)
        call = delete(served)
        await begun.wait()
        call.cancel()
        await until(lambda: not served.hub.driver.calls._total)
        may_go.set()
    assert await restarted(tmp_path, served) == 0
