"""A hub that stops ends the streams of its peers, and says why; a start that fails ends whole."""

import asyncio
from pathlib import Path

import pytest

from antiphon.v1 import sync_pb2
from replica.link.messages import Ack, Close, Entries, Hello
from replica.refusals import ArgumentInvalid
from syncd.io.config import HubConfig
from syncd.io.server import start
from tests.support.callers import PATIENCE_S, refused, serve_hub, until
from tests.support.writers import said


async def test_a_link_is_finished_behind_its_acks_and_a_watch_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("syncd.io.server.STOP_GRACE_S", 3600.0)
    async with serve_hub(tmp_path) as served:
        request = sync_pb2.WatchRequest(conversation=served.id)
        watch = served.owner.sync.Watch(request, metadata=served.owner.metadata)
        assert await watch.read()
        link = served.owner.link()
        await link.send(Hello((1,)))
        await link.read()
        entry = served.writer.write(served.id, said("the last"), parents=[served.entries[-1]])
        await link.send(Entries(served.id, (entry,)))
        log = served.hub.driver.hub.shelf[served.id].log
        await until(lambda: entry.id in log.entries)
        async with asyncio.timeout(PATIENCE_S):
            await served.hub.stop()
        received = [await link.read()]
        while not isinstance(received[-1], Close):
            received.append(await link.read())
        assert any(isinstance(one, Ack) for one in received)
        assert received[-1].fault is not None
        assert received[-1].fault.reason == "UNAVAILABLE"
        assert await refused(watch) == "UNAVAILABLE"


async def test_a_start_that_fails_leaves_no_task_and_a_store_that_is_free(tmp_path: Path) -> None:
    async with serve_hub(tmp_path) as served:
        before = asyncio.all_tasks()
        taken = HubConfig(data_dir=tmp_path / "second", listen=served.hub.address)
        with pytest.raises(ArgumentInvalid, match="can't listen"):
            await start(taken)
        assert not asyncio.all_tasks() - before
        second = await start(HubConfig(data_dir=tmp_path / "second", listen="127.0.0.1:0"))
        await second.stop()
