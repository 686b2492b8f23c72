"""Entries and blobs of one creator share a bound on disk, over gRPC and restarts (LIM-15)."""

import hashlib
from pathlib import Path

from replica.errors import AntiphonError
from replica.ids import Digest
from replica.io.blob_calls import BlobCalls
from syncd.io.config import HubConfig
from syncd.io.server import start
from tests.support.callers import ServedHub, serve_hub
from tests.support.writers import Writer, said

BOUND = 100_000


async def put(served: ServedHub, size: int) -> str:
    """Write a blob; return the reason of its refusal, if there is one."""
    data = bytes(size)
    digest = Digest(hashlib.sha256(data).digest())

    def read(at: int) -> bytes:
        return data[at : at + 50_000]

    try:
        await BlobCalls(served.owner.calls).write(served.id, digest, size, read)
    except AntiphonError as error:
        return error.reason
    return ""


async def test_blobs_and_entries_share_the_disk_of_their_creator(tmp_path: Path) -> None:
    async with serve_hub(tmp_path, disk_creator_bytes_max=BOUND) as served:
        disk = served.hub.driver.hub.disk
        assert await put(served, BOUND) == "QUOTA_EXCEEDED"
        assert await put(served, 80_000) == ""
        assert 80_000 < disk.total < BOUND
        words = Writer(1, epoch=50).write(
            served.id, said("x" * 20_000), parents=[served.entries[-1]]
        )
        outcomes = await served.owner.calls.push(served.id, (words,))
        fault = outcomes[words.id]
        assert fault is not None
        assert fault.reason == "QUOTA_EXCEEDED"
        before = disk.total
        await served.say("a short one fits")
        assert disk.total > before
        counted = disk.total
        assert counted < BOUND
    hub = await start(HubConfig(data_dir=tmp_path / "hub", listen="127.0.0.1:0"))
    assert hub.driver.hub.disk.total == counted
    await hub.stop()
