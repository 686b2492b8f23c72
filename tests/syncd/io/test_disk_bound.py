"""Entries and blobs of one creator share a bound on disk, over gRPC and restarts (LIM-15)."""

import asyncio
import hashlib
import operator
import time
from functools import partial
from pathlib import Path

import grpc

from antiphon.v1 import blob_pb2
from replica.errors import AntiphonError
from replica.ids import Digest
from replica.io import status
from replica.io.calls.blob_calls import BlobCalls
from syncd.bounds.disk_quota import FILE_BYTES
from syncd.io.config import HubConfig
from syncd.io.server import start
from tests.support.callers import ServedHub, serve_hub, until
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


async def write(served: ServedHub, data: bytes, size: int, *, digest: bytes = b"") -> str:
    """Announce `size` bytes and send `data`, at offset 0; return the reason of a refusal."""
    call = served.owner.blobs.Write(metadata=served.owner.metadata)
    digest = digest or hashlib.sha256(data).digest()
    first = blob_pb2.WriteRequest(conversation=served.id, digest=digest, size_bytes=size, data=data)
    try:
        await call.write(first)
        await call.done_writing()
        await call
    except grpc.aio.AioRpcError as error:
        return status.from_rpc_error(error).reason
    return ""


async def test_bytes_that_were_announced_and_not_sent_are_not_counted(tmp_path: Path) -> None:
    async with serve_hub(tmp_path, disk_creator_bytes_max=BOUND) as served:
        disk = served.hub.driver.hub.disk
        before = disk.total
        for number in range(1, 6):
            assert await write(served, b"", 60_000, digest=bytes([number]) * 32) == ""
        assert disk.total == before + 5 * FILE_BYTES  # each has a file
        assert await write(served, b"sent", 60_000, digest=bytes(32)) == ""
        assert disk.total == before + 6 * FILE_BYTES + 4
        await served.say("the disk is free")
        counted = disk.total
    hub = await start(HubConfig(data_dir=tmp_path / "hub", listen="127.0.0.1:0"))
    assert hub.driver.hub.disk.total == counted
    await hub.stop()


async def test_writes_at_the_same_time_do_not_pass_the_bound_together(tmp_path: Path) -> None:
    async with serve_hub(tmp_path, disk_creator_bytes_max=BOUND) as served:
        uploads = (write(served, bytes([number]) * 60_000, 60_000) for number in range(8))
        reasons = sorted(await asyncio.gather(*uploads))
        assert reasons == ["", *["QUOTA_EXCEEDED"] * 7]
        assert served.hub.driver.hub.disk.total < BOUND


async def test_an_upload_that_goes_on_is_counted_once(tmp_path: Path) -> None:
    async with serve_hub(tmp_path, disk_creator_bytes_max=BOUND) as served:
        data = bytes(60_000)
        digest = hashlib.sha256(data).digest()
        assert await write(served, b"", len(data), digest=digest) == ""
        assert await write(served, data, len(data), digest=digest) == ""


async def test_an_open_upload_is_counted_with_its_final_size(tmp_path: Path) -> None:
    async with serve_hub(tmp_path, disk_creator_bytes_max=BOUND) as served:
        disk = served.hub.driver.hub.disk
        before = disk.total
        call = served.owner.blobs.Write(metadata=served.owner.metadata)
        await call.write(
            blob_pb2.WriteRequest(conversation=served.id, digest=bytes(32), size_bytes=60_000)
        )
        await until(lambda: disk.total == before + 60_000 + FILE_BYTES)
        assert await write(served, b"x", 60_000) == "QUOTA_EXCEEDED"
        call.cancel()
        await until(lambda: disk.total == before + FILE_BYTES)


async def test_a_blob_that_does_not_match_is_not_counted(tmp_path: Path) -> None:
    async with serve_hub(tmp_path, disk_creator_bytes_max=BOUND) as served:
        disk = served.hub.driver.hub.disk
        before = disk.total
        wrong = await write(served, bytes(60_000), 60_000, digest=bytes(32))
        assert (wrong, disk.total) == ("BLOB_DIGEST_MISMATCH", before)


async def test_a_blob_that_expired_is_not_counted(tmp_path: Path) -> None:
    async with serve_hub(tmp_path, disk_creator_bytes_max=BOUND) as served:
        disk, blobs = served.hub.driver.hub.disk, served.hub.driver.blobs
        before, calls = disk.total, BlobCalls(served.owner.calls)
        first, second = bytes(60_000), b"x" * 60_000
        for data, lifetime_s, passed_s in ((first, 1_000, 0), (second, 9_000, 2_000)):
            blobs._clock = partial(operator.add, time.time(), passed_s)
            digest = Digest(hashlib.sha256(data).digest())
            expire_ms = int((time.time() + lifetime_s) * 1000)
            read = partial(operator.getitem, {0: data})
            await calls.write(served.id, digest, len(data), read, expire_ms)
            assert disk.total == before + 60_000 + FILE_BYTES
        await served.say("x" * 20_000)
