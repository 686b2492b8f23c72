"""Blobs that expire: served like others, deleted in time, apart from those that last."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from antiphon.v1 import blob_pb2 as pb
from antiphon.v1.blob_pb2_grpc import BlobServiceStub
from replica.errors import AntiphonError, StoreError, Unavailable
from replica.ids import ConversationId, Digest
from replica.io import BlobCalls, Blobs, BlobState, ExpiringBlobs, rpc
from replica.io.serving.rpc import now_ms
from replica.log import Grant, Member, Role
from replica.refusals import (
    ArgumentInvalid,
    BlobMissing,
    BlobOffsetInvalid,
    NotAllowed,
    QuotaExceeded,
)
from syncd.bounds.disk_quota import FILE_BYTES, DiskQuota
from syncd.io import blob_stores
from syncd.io.blob_stores import SWEEP_EVERY_S, BlobStores
from tests.support.callers import Caller, ServedHub, serve_hub, until
from tests.support.writers import Writer

CONVERSATION = ConversationId(b"c" * 32)
NOTHING = BlobState(complete=False, committed_bytes=0, size_bytes=0)
DATA = bytes(range(256)) * 2_000
DIGEST = Digest(hashlib.sha256(DATA).digest())


class Stores:
    """The stores of a hub with a clock of their own."""

    def __init__(self, folder: Path) -> None:
        self.now = now_ms() / 1000  # the file system's own clock dates uploads
        self.folder = folder / "expiring"
        lasting = Blobs(folder / "blobs")
        expiring = ExpiringBlobs(self.folder, total_bytes_max=600_000)
        self.all = BlobStores(lasting, expiring, lambda: self.now)
        self.disk = DiskQuota()

    async def put(self, data: bytes, expire_s: float) -> BlobState:
        digest = Digest(hashlib.sha256(data).digest())
        expire_ms = int(expire_s * 1000)
        async with await self.all.open_write(
            CONVERSATION, digest, len(data), 0, expire_ms
        ) as writer:
            await writer.write(data)
        await self.all.finish(CONVERSATION, digest, expire_ms)
        return await self.all.stat(CONVERSATION, digest)

    async def pass_time(self, seconds: float) -> None:
        self.now += seconds
        await self.all.sweep()


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    return Stores(tmp_path)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[ServedHub]:
    async with serve_hub(tmp_path) as hub:
        yield hub


def read(at: int) -> bytes:
    return DATA[at : at + 100_000]


async def test_a_blob_is_deleted_once_it_expires(stores: Stores) -> None:
    assert (await stores.put(DATA, stores.now + 500)).complete
    await stores.pass_time(SWEEP_EVERY_S)
    assert (await stores.all.stat(CONVERSATION, DIGEST)).complete
    await stores.pass_time(500)
    assert await stores.all.stat(CONVERSATION, DIGEST) == NOTHING


async def test_a_later_time_counts_and_an_earlier_one_does_not(stores: Stores) -> None:
    await stores.put(DATA, stores.now + 500)
    for expire_s in (stores.now + 900, stores.now + 100):
        at = len(DATA)
        writer = await stores.all.open_write(CONVERSATION, DIGEST, at, at, int(expire_s * 1000))
        await writer.close()
        await stores.all.finish(CONVERSATION, DIGEST, int(expire_s * 1000))
    await stores.pass_time(600)
    assert (await stores.all.stat(CONVERSATION, DIGEST)).complete
    await stores.pass_time(400)
    assert await stores.all.stat(CONVERSATION, DIGEST) == NOTHING


async def test_an_upload_that_nobody_ends_is_deleted(stores: Stores) -> None:
    expire_ms = int(stores.now * 1000) + 10**9
    writer = await stores.all.open_write(CONVERSATION, DIGEST, len(DATA), 0, expire_ms)
    await writer.write(DATA[:10])
    await writer.close()
    await stores.pass_time(3600)
    assert len(list(stores.folder.glob("*/*"))) == 1
    await stores.pass_time(24 * 3600)
    assert list(stores.folder.glob("*/*")) == []


async def test_what_was_set_aside_as_damaged_is_removed_too(stores: Stores) -> None:
    await stores.put(DATA, stores.now + 500)
    (file,) = stores.folder.glob("*/*")
    file.write_bytes(b"x" * len(DATA))
    with pytest.raises(BlobMissing):
        _ = [part async for part in stores.all.read(CONVERSATION, DIGEST, 0)]
    assert [one.suffix for one in stores.folder.glob("*/*")] == [".bad"]
    assert await stores.all.remove(CONVERSATION, DIGEST) == len(DATA)
    assert list(stores.folder.glob("*/*")) == []


async def test_an_upload_that_is_removed_goes_no_further(stores: Stores) -> None:
    expire_ms = int(stores.now * 1000) + 10**9
    writer = await stores.all.open_write(CONVERSATION, DIGEST, len(DATA), 0, expire_ms)
    await writer.write(DATA[:10])
    assert await stores.all.remove(CONVERSATION, DIGEST) == 10
    with pytest.raises(BlobOffsetInvalid):
        await writer.write(DATA[10:])
    assert list(stores.folder.glob("*/*")) == []


async def test_a_lasting_blob_neither_expires_nor_is_removed(stores: Stores) -> None:
    await stores.put(DATA, 0)
    await stores.put(DATA, stores.now + 10)
    assert await stores.all.remove(CONVERSATION, DIGEST) == len(DATA)
    await stores.pass_time(10**9)
    assert (await stores.all.stat(CONVERSATION, DIGEST)).complete
    assert await stores.all.remove(CONVERSATION, DIGEST) == 0


async def test_expiring_blobs_have_a_quota_of_their_own(stores: Stores) -> None:
    await stores.put(DATA, stores.now + 500)
    with pytest.raises(QuotaExceeded):
        await stores.put(DATA + b"x", stores.now + 500)
    await stores.put(DATA + b"x", 0)
    with pytest.raises(ArgumentInvalid, match="compare the two clocks"):
        await stores.put(b"late", stores.now)


async def test_a_deleted_conversation_loses_both_kinds(stores: Stores) -> None:
    await stores.put(DATA, stores.now + 500)
    await stores.put(b"lasting", 0)
    await stores.all.delete(CONVERSATION)
    assert await stores.all.stat(CONVERSATION, DIGEST) == NOTHING


async def test_a_hub_serves_and_removes_them(served: ServedHub) -> None:
    blobs = BlobCalls(served.owner.calls)
    await blobs.write(served.id, DIGEST, len(DATA), read, now_ms() + 60_000)
    assert await blobs.stat(served.id, DIGEST) == BlobState(True, len(DATA), len(DATA))
    assert b"".join([part async for part in blobs.read(served.id, DIGEST)]) == DATA
    assert await blobs.remove(served.id, DIGEST) == len(DATA)
    with pytest.raises(BlobMissing):
        _ = [part async for part in blobs.read(served.id, DIGEST)]
    await blobs.write(served.id, DIGEST, len(DATA), read)
    assert await blobs.remove(served.id, DIGEST) == 0
    assert (await blobs.stat(served.id, DIGEST)).complete


async def test_an_upload_goes_on_where_it_broke_off(served: ServedHub) -> None:
    blobs, asked = BlobCalls(served.owner.calls), []

    def cut(at: int) -> bytes:
        return DATA[at:200_000][:100_000]

    def rest(at: int) -> bytes:
        asked.append(at)
        return DATA[at : at + 200_000]

    with pytest.raises(Unavailable):
        await blobs.write(served.id, DIGEST, len(DATA), cut, now_ms() + 60_000)
    await blobs.write(served.id, DIGEST, len(DATA), rest, now_ms() + 60_000)
    assert asked == [200_000, 400_000]


async def test_writers_and_strangers_remove_nothing(served: ServedHub) -> None:
    writer = Writer(3)
    grant = served.writer.write(
        served.id, Member(Grant(writer.public, Role.WRITER)), parents=[served.genesis]
    )
    assert await served.owner.calls.push(served.id, (grant,)) == {grant.id: None}
    mine = BlobCalls(served.owner.calls)
    await mine.write(served.id, DIGEST, len(DATA), read, now_ms() + 60_000)
    caller = await Caller(served.hub.address, served.owner.calls._store, writer.key).enter()
    try:
        with pytest.raises(NotAllowed):
            await BlobCalls(caller.calls).remove(served.id, DIGEST)
    finally:
        await caller.calls.close()
    with pytest.raises(AntiphonError):
        await BlobCalls(served.stranger.calls).remove(served.id, DIGEST)
    assert (await mine.stat(served.id, DIGEST)).complete


async def test_one_digest_is_kept_in_both_ways(served: ServedHub) -> None:
    blobs = BlobCalls(served.owner.calls)
    await blobs.write(served.id, DIGEST, len(DATA), read, now_ms() + 60_000)
    await blobs.write(served.id, DIGEST, len(DATA), read, now_ms() + 90_000)
    await blobs.write(served.id, DIGEST, len(DATA), read)
    assert await blobs.remove(served.id, DIGEST) == len(DATA)
    assert b"".join([part async for part in blobs.read(served.id, DIGEST)]) == DATA


async def test_an_upload_that_has_begun_hides_no_blob_that_expires(stores: Stores) -> None:
    await stores.put(DATA, stores.now + 500)
    writer = await stores.all.open_write(CONVERSATION, DIGEST, len(DATA), 0, 0)
    await writer.write(DATA[:10])
    await writer.close()
    assert (await stores.all.stat(CONVERSATION, DIGEST)).complete
    found = [part async for part in stores.all.read(CONVERSATION, DIGEST, 0)]
    assert b"".join(found) == DATA


async def test_what_was_removed_or_expired_counts_no_longer(stores: Stores) -> None:
    other = bytes(DATA[:-1])
    await stores.put(b"lasting", 0)
    stores.disk.set_log(CONVERSATION, Writer(1).public, 1_000)
    await stores.all.count_with(stores.disk)
    before = 1_000 + len(b"lasting") + FILE_BYTES
    await stores.put(DATA, stores.now + 100)
    with pytest.raises(QuotaExceeded):
        await stores.put(other, stores.now + 100)
    assert stores.disk.total == before + len(DATA) + FILE_BYTES
    await stores.all.remove(CONVERSATION, DIGEST)
    assert stores.disk.total == before
    await stores.put(other, stores.now + 100)
    assert stores.disk.total == before + len(other) + FILE_BYTES
    await stores.pass_time(100 + SWEEP_EVERY_S)
    assert stores.disk.total == before
    assert (await stores.put(DATA, stores.now + 100)).complete
    stores.disk.release(CONVERSATION)
    assert stores.disk.total == 0


async def test_what_is_overdue_is_deleted_without_a_write(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blob_stores, "SWEEP_EVERY_S", 0.0)
    await stores.put(DATA, stores.now + 100)
    writer = await stores.all.open_write(CONVERSATION, DIGEST, len(DATA), 0, 0)
    await writer.close()
    stores.now += 25 * 3600
    sweeps = asyncio.create_task(stores.all.run_sweeps())
    await until(lambda: not list(stores.folder.parent.glob("*/*/*")))
    sweeps.cancel()


async def test_a_clock_that_was_set_back_puts_off_no_sweep(stores: Stores) -> None:
    """It was years ahead at the start of the machine, until the network set it."""
    right = stores.now
    await stores.pass_time(10 * 365 * 24 * 3600)
    stores.now = right
    await stores.put(DATA, stores.now + 100)
    await stores.pass_time(100)
    assert not list(stores.folder.glob("*/*"))


async def test_a_disk_that_refuses_ends_no_sweep(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blob_stores, "SWEEP_EVERY_S", 0.0)
    await stores.put(DATA, stores.now + 100)
    stores.now += 1_000
    tried: list[float] = []
    sweep = Blobs.sweep

    async def refused(self: Blobs, now_s: float) -> dict[ConversationId, int]:
        tried.append(now_s)
        if len(tried) == 1:
            raise StoreError("the disk refuses")
        return await sweep(self, now_s)

    monkeypatch.setattr(Blobs, "sweep", refused)
    with capture_logs() as lines:
        sweeps = asyncio.create_task(stores.all.run_sweeps())
        await until(lambda: not list(stores.folder.glob("*/*")))
        sweeps.cancel()
    (line,) = [line for line in lines if line["event"] == "overdue blobs not deleted"]
    assert "exc_info" not in line
    assert (line["detail"], line["next_step"]) == ("the disk refuses", StoreError.next_step)


async def test_a_sweep_goes_on_when_the_write_that_began_it_is_cancelled(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call goes away once the first of two conversations has lost its file."""
    await stores.put(DATA, stores.now + 100)
    other = ConversationId(b"o" * 32)
    expire_ms = int(stores.now * 1000) + 100_000
    async with await stores.all.open_write(other, DIGEST, len(DATA), 0, expire_ms) as writer:
        await writer.write(DATA)
    stores.now += 1_000
    loop, unlink = asyncio.get_running_loop(), os.unlink
    write = asyncio.ensure_future(
        stores.all.open_write(CONVERSATION, DIGEST, len(DATA), 0, expire_ms + 10**7)
    )

    def cancelling(path: Path) -> None:
        unlink(path)
        loop.call_soon_threadsafe(write.cancel)

    monkeypatch.setattr(os, "unlink", cancelling)
    with pytest.raises(asyncio.CancelledError):
        await write
    assert list(stores.folder.glob("*/*")) == []


async def test_a_whole_blob_expires_no_earlier_than_was_asked_for(stores: Stores) -> None:
    """The hub looks for expired blobs behind the last byte, before the client ends its call."""
    expire_ms = int(stores.now * 1000) + 500_000
    async with await stores.all.open_write(CONVERSATION, DIGEST, len(DATA), 0, expire_ms) as writer:
        assert (await writer.write(DATA)).complete
        await stores.pass_time(SWEEP_EVERY_S)
    assert (await stores.all.stat(CONVERSATION, DIGEST)).complete
    await stores.pass_time(500)
    assert await stores.all.stat(CONVERSATION, DIGEST) == NOTHING
    with pytest.raises(BlobMissing):
        await stores.all.finish(CONVERSATION, DIGEST, expire_ms)


async def test_the_time_of_a_resumed_upload_is_the_last_one(stores: Stores) -> None:
    for expire_s, data in ((900.0, DATA[:10]), (500.0, DATA[10:])):
        at, expire_ms = DATA.index(data), int((stores.now + expire_s) * 1000)
        async with await stores.all.open_write(
            CONVERSATION, DIGEST, len(DATA), at, expire_ms
        ) as writer:
            await writer.write(data)
    await stores.pass_time(400)
    assert (await stores.all.stat(CONVERSATION, DIGEST)).complete
    await stores.pass_time(200)
    assert await stores.all.stat(CONVERSATION, DIGEST) == NOTHING


async def test_a_hub_does_not_confirm_a_blob_that_is_gone(served: ServedHub) -> None:
    """It is removed behind its last byte, before the client ends its call."""
    blobs, expire_ms = BlobCalls(served.owner.calls), now_ms() + 60_000
    data = DATA[:100]
    digest = Digest(hashlib.sha256(data).digest())
    first = pb.WriteRequest(
        conversation=served.id, digest=digest, size_bytes=100, expire_time_ms=expire_ms
    )

    async def requests() -> AsyncIterator[pb.WriteRequest]:
        yield first
        yield pb.WriteRequest(data=data)
        while not (await blobs.stat(served.id, digest)).complete:
            pass
        assert await blobs.remove(served.id, digest) == len(data)

    stub = BlobServiceStub(served.owner.calls.channel)
    with pytest.raises(BlobMissing):
        await rpc.typed(stub.Write(requests(), metadata=served.owner.metadata))
