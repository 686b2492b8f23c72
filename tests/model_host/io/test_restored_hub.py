"""A hub that comes back from a backup, without what a host uploaded since."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from syncd.io.config import HubConfig
from syncd.io.server import HubServer
from syncd.io.server import start as start_hub
from tests.model_host.io.test_hub_checkpoints import BUDGET, LONG, checkpoints
from tests.model_host.io.tiny_hosts import TinyHosts, tiny_hosts
from tests.support.callers import until

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture
async def hosts(tmp_path: Path) -> AsyncIterator[TinyHosts]:
    async with tiny_hosts(tmp_path) as made:
        yield made


async def test_an_archive_that_a_hub_from_a_backup_lacks_is_uploaded_again(hosts: TinyHosts):
    config = HubConfig(data_dir=hosts.folder / "hub", listen=hosts.hub.address)
    talk = await hosts.talk("one")
    async with hosts.host("one", hub_checkpoint_bytes_max=BUDGET) as host:
        counters = host.hub_tier.counters

        async def come_back() -> HubServer:
            back = await start_hub(config)
            for replica in (host.replica, hosts.replica):
                assert await replica.wait_synced(talk.id, 30)
            return back

        await talk.ask(LONG, tokens=2)
        await until(lambda: len(hosts.blobs(talk)) == len(checkpoints(talk)) == 1)
        await hosts.hub.stop()
        shutil.copytree(config.data_dir, hosts.folder / "backup")
        back = await come_back()
        await talk.ask("Once more.", tokens=2)
        await until(lambda: (counters.uploaded, counters.removed) == (2, 1))
        await back.stop()
        shutil.rmtree(config.data_dir)
        (hosts.folder / "backup").rename(config.data_dir)
        back = await come_back()
        try:
            await until(lambda: len(checkpoints(talk)) == 3)
            await until(lambda: len(hosts.blobs(talk)) == 1)  # the older one goes once more
            (blob,) = hosts.blobs(talk)
            assert blob.name == checkpoints(talk)[-1].blob.hex()
            await until(lambda: host.hub_tier.nbytes == blob.stat().st_size)
            # What is there is not uploaded again with each link.
            await back.stop()
            back = await come_back()
            await until(lambda: not host.hub_tier._due)
            await talk.ask("And once more.", tokens=2)
            await until(lambda: checkpoints(talk)[-1].blob.hex() != blob.name)
            assert (counters.uploaded, counters.upload_failures) == (4, 0)
        finally:
            await back.stop()
