"""A deletion is durable or did not happen, whatever the disk refuses and whoever hangs up."""

import asyncio
from collections.abc import AsyncIterator, Collection
from pathlib import Path

import grpc
import pytest

from antiphon.v1 import sync_pb2
from replica.ids import ConversationId
from replica.io import Blobs, Store
from replica.refusals import StoreFull
from syncd.io import deletions
from syncd.io.config import HubConfig
from syncd.io.server import start
from tests.replica.io.store.test_salvage import log
from tests.support.callers import ServedHub, refused, serve_hub, until


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
            patched.setattr(driver.store.tombstones, "put", full)
            assert await refused(delete(served)) == "STORE_FULL"
        assert driver.hub.disk.total == used
        await served.say("acknowledged after the refusal")
    assert await restarted(tmp_path, served) == len(served.entries)


async def test_a_deletion_counts_for_its_bringer_after_a_restart(tmp_path: Path) -> None:
    async with serve_hub(tmp_path) as served:
        bringer = served.hub.driver.hub.bringers.bringer(served.id)
        assert bringer is not None
        await delete(served)
    for _ in range(2):
        hub = await start(HubConfig(data_dir=tmp_path / "hub", listen="127.0.0.1:0"))
        try:
            assert hub.driver.hub.bringers.brought(bringer) == 1
            assert hub.driver.hub.bringers.bringer(served.id) == bringer
        finally:
            await hub.stop()


async def test_a_deletion_goes_on_without_its_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve_hub(tmp_path) as served:
        tombstones = served.hub.driver.store.tombstones
        put, begun, may_go = tombstones.put, asyncio.Event(), asyncio.Event()

        async def slowly(conversations: Collection[ConversationId]) -> None:
            begun.set()
            await may_go.wait()
            await put(conversations)

        monkeypatch.setattr(tombstones, "put", slowly)
        call = delete(served)
        await begun.wait()
        call.cancel()
        await until(lambda: not served.hub.driver.calls._total)
        may_go.set()
    assert await restarted(tmp_path, served) == 0


async def test_a_second_deletion_is_told_what_became_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve_hub(tmp_path) as served, asyncio.timeout(20):
        tombstones = served.hub.driver.store.tombstones
        begun, may_go = asyncio.Event(), asyncio.Event()

        async def refuse_late(_conversations: Collection[ConversationId]) -> None:
            begun.set()
            await may_go.wait()
            raise StoreFull

        with monkeypatch.context() as patched:
            patched.setattr(tombstones, "put", refuse_late)
            first = delete(served)
            await begun.wait()
            deleting = served.hub.driver._deletions
            decided, waits = deleting.decided, asyncio.Event()

            async def noted(conversation: ConversationId) -> None:
                waits.set()
                await decided(conversation)

            patched.setattr(deleting, "decided", noted)
            second = delete(served)
            await waits.wait()
        may_go.set()
        assert await refused(first) == "STORE_FULL"
        assert (await second).entries == len(served.entries)
        assert await refused(delete(served)) == "CONVERSATION_DELETED"
    assert await restarted(tmp_path, served) == 0


async def test_a_start_completes_the_deletions_that_were_interrupted_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve_hub(tmp_path) as served:
        await delete(served)
        finished, store = served.id, served.hub.driver.store
        assert not await store.has(finished)
        interrupted = log(3, seed=7)
        await store.append(interrupted)
        await store.tombstones.put([interrupted[0].conversation])
    erased: list[ConversationId] = []
    erase = Blobs.delete

    async def noted(self: Blobs, conversation: ConversationId) -> None:
        erased.append(conversation)
        await erase(self, conversation)

    monkeypatch.setattr(Blobs, "delete", noted)
    for expected in ({interrupted[0].conversation}, set()):
        erased.clear()
        hub = await start(HubConfig(data_dir=tmp_path / "hub", listen="127.0.0.1:0"))
        try:
            assert hub.driver.hub.deleted == {finished, interrupted[0].conversation}
            assert not await hub.driver.store.has(interrupted[0].conversation)
        finally:
            await hub.stop()
        assert set(erased) == expected


async def test_a_hub_that_stops_leaves_the_rest_of_an_erasure_to_its_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long one takes longer than whoever stops the hub waits."""
    began = asyncio.Event()

    async def endless(*_conversation: object, **_finishes: object) -> None:
        began.set()
        await asyncio.Event().wait()

    async with serve_hub(tmp_path) as served, asyncio.timeout(20):
        monkeypatch.setattr(served.hub.driver.store, "delete", endless)
        call = delete(served)
        await began.wait()
        call.cancel()
    assert await restarted(tmp_path, served) == 0
    async with await Store.open(tmp_path / "hub" / "log" / "log.db") as store:
        assert await store.tombstones.load() == {served.id: True}
        assert not await store.has(served.id)


async def test_a_deletion_whose_bytes_are_not_gone_is_not_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve_hub(tmp_path) as served:
        with monkeypatch.context() as patched:
            patched.setattr(served.hub.driver.blobs, "delete", full)
            await delete(served)
        store = served.hub.driver.store
        assert await store.tombstones.load() == {served.id: False}
        assert await store.has(served.id)
    assert await restarted(tmp_path, served) == 0
    async with await Store.open(tmp_path / "hub" / "log" / "log.db") as store:
        assert await store.tombstones.load() == {served.id: True}
        assert not await store.has(served.id)


async def test_what_a_full_disk_kept_of_a_deletion_is_erased_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletions, "ERASE_AGAIN_S", 0.001)
    async with serve_hub(tmp_path) as served, asyncio.timeout(20):
        driver = served.hub.driver
        refusals = 0

        async def full_twice(conversation: ConversationId) -> None:
            nonlocal refusals
            refusals += 1
            if refusals < 3:
                raise StoreFull

        monkeypatch.setattr(driver.blobs, "delete", full_twice)
        tombstones, finished = driver.store.tombstones, asyncio.Event()
        finish = tombstones.finish

        async def noted(conversations: Collection[ConversationId]) -> None:
            await finish(conversations)
            if conversations:
                finished.set()

        monkeypatch.setattr(tombstones, "finish", noted)
        await delete(served)  # it is deleted, whatever the disk keeps for now
        assert await refused(delete(served)) == "CONVERSATION_DELETED"
        await finished.wait()
        assert await tombstones.load() == {served.id: True}
        assert not await driver.store.has(served.id)
