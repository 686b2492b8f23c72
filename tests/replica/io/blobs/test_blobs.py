import asyncio
import hashlib
import random
from pathlib import Path

import pytest

from replica.errors import StoreError
from replica.ids import ConversationId, Digest
from replica.io.blobs.blob_files import BlobState
from replica.io.blobs.blob_writer import SYNC_BYTES
from replica.io.blobs.blobs import Blobs
from replica.limits import BLOB_CHUNK_BYTES
from replica.refusals import (
    ArgumentInvalid,
    BlobDigestMismatch,
    BlobMissing,
    BlobOffsetInvalid,
    BlobTooLarge,
    ConversationDeleted,
    QuotaExceeded,
)
from tests.support.files import flip_byte

CONVERSATION = ConversationId(b"c" * 32)
OTHER = ConversationId(b"o" * 32)
NOTHING = BlobState(complete=False, committed_bytes=0, size_bytes=0)


def data_of(size: int) -> tuple[Digest, bytes]:
    data = random.Random(size).randbytes(size)
    return Digest(hashlib.sha256(data).digest()), data


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(tmp_path / "blobs", bytes_max=4 * 1024 * 1024)


async def put(blobs: Blobs, digest: Digest, data: bytes, offset: int = 0) -> BlobState:
    async with await blobs.open_write(CONVERSATION, digest, len(data), offset) as writer:
        for at in range(offset, len(data), BLOB_CHUNK_BYTES):
            await writer.write(data[at : at + BLOB_CHUNK_BYTES])
        return writer.state


async def get(blobs: Blobs, digest: Digest, offset: int = 0) -> bytes:
    return b"".join([chunk async for chunk in blobs.read(CONVERSATION, digest, offset)])


@pytest.mark.parametrize("size", [0, 1, BLOB_CHUNK_BYTES, BLOB_CHUNK_BYTES + 1, 3_000_000])
async def test_a_blob_comes_back_as_it_was_written(blobs: Blobs, size: int) -> None:
    digest, data = data_of(size)
    whole = BlobState(complete=True, committed_bytes=size, size_bytes=size)
    assert await blobs.stat(CONVERSATION, digest) == NOTHING
    assert await put(blobs, digest, data) == whole
    assert await blobs.stat(CONVERSATION, digest) == whole
    assert await get(blobs, digest) == data
    assert await get(blobs, digest, size // 2) == data[size // 2 :]
    assert await get(blobs, digest, size) == b""


async def test_chunks_fit_a_frame(blobs: Blobs) -> None:
    digest, data = data_of(1_000_000)
    await put(blobs, digest, data)
    sizes = [len(chunk) async for chunk in blobs.read(CONVERSATION, digest, 0)]
    assert max(sizes) == BLOB_CHUNK_BYTES
    assert sum(sizes) == len(data)


async def test_a_blob_is_known_in_its_own_conversation_only(blobs: Blobs) -> None:
    digest, data = data_of(10)
    await put(blobs, digest, data)
    assert await blobs.stat(OTHER, digest) == NOTHING
    with pytest.raises(BlobMissing):
        await anext(blobs.read(OTHER, digest, 0))


async def test_committed_bytes_grow_and_an_upload_resumes_there(
    blobs: Blobs, tmp_path: Path
) -> None:
    digest, data = data_of(3_500_000)
    committed = [0]
    async with await blobs.open_write(CONVERSATION, digest, len(data), 0) as writer:
        for at in range(0, 3_000_000, 100_000):
            state = await writer.write(data[at : at + 100_000])
            assert state == await blobs.stat(CONVERSATION, digest)
            assert state.committed_bytes >= committed[-1]
            assert at + 100_000 - state.committed_bytes < SYNC_BYTES
            committed.append(state.committed_bytes)
    assert len(set(committed)) > 2
    again = Blobs(tmp_path / "blobs")  # As after a restart.
    expected = BlobState(complete=False, committed_bytes=3_000_000, size_bytes=len(data))
    assert await again.stat(CONVERSATION, digest) == expected
    with pytest.raises(BlobMissing):
        await get(again, digest)
    assert (await put(again, digest, data, 3_000_000)).complete
    assert await get(again, digest) == data


@pytest.mark.parametrize("offset", [0, 49, 51, 100])
async def test_an_offset_other_than_the_committed_size_is_refused(
    blobs: Blobs, offset: int
) -> None:
    digest, data = data_of(100)
    async with await blobs.open_write(CONVERSATION, digest, 100, 0) as writer:
        await writer.write(data[:50])
    with pytest.raises(BlobOffsetInvalid, match="50 of 100"):
        await blobs.open_write(CONVERSATION, digest, 100, offset)
    assert (await put(blobs, digest, data, 50)).complete


async def test_a_complete_blob_accepts_no_more_bytes(blobs: Blobs) -> None:
    digest, data = data_of(100)
    await put(blobs, digest, data)
    for size in (100, 99):
        with pytest.raises(BlobOffsetInvalid):
            await blobs.open_write(CONVERSATION, digest, size, 0)
    async with await blobs.open_write(CONVERSATION, digest, 100, 100) as writer:
        assert writer.state.complete
        assert (await writer.write(b"")).complete
        with pytest.raises(ArgumentInvalid, match="past the 100 bytes announced"):
            await writer.write(b"x")
    assert await get(blobs, digest) == data


async def test_an_upload_may_begin_anew_with_another_size(blobs: Blobs) -> None:
    digest, data = data_of(100)
    async with await blobs.open_write(CONVERSATION, digest, 70, 0) as writer:
        await writer.write(data[:50])
    with pytest.raises(BlobOffsetInvalid):
        await blobs.open_write(CONVERSATION, digest, 100, 50)
    assert (await put(blobs, digest, data)).complete


async def test_too_large_and_over_long_data_is_refused(blobs: Blobs) -> None:
    digest, data = data_of(100)
    with pytest.raises(BlobTooLarge):
        await blobs.open_write(CONVERSATION, digest, 4 * 1024 * 1024 + 1, 0)
    async with await blobs.open_write(CONVERSATION, digest, 100, 0) as writer:
        await writer.write(data[:60])
        with pytest.raises(ArgumentInvalid):
            await writer.write(data[60:] + b"x")
        assert (await writer.write(data[60:])).complete


async def test_wrong_bytes_are_dropped_at_the_end(blobs: Blobs) -> None:
    digest, data = data_of(100)
    with pytest.raises(BlobDigestMismatch):
        await put(blobs, digest, bytes(100))
    assert await blobs.stat(CONVERSATION, digest) == NOTHING
    assert (await put(blobs, digest, data)).complete
    with pytest.raises(BlobDigestMismatch):
        await put(blobs, data_of(1)[0], b"")


async def test_a_second_writer_replaces_the_first(blobs: Blobs) -> None:
    digest, data = data_of(100)
    first = await blobs.open_write(CONVERSATION, digest, 100, 0)
    await first.write(data[:50])
    second = await blobs.open_write(CONVERSATION, digest, 100, 50)
    with pytest.raises(BlobOffsetInvalid):
        await first.write(data[50:])
    await first.close()
    assert (await second.write(data[50:])).complete


async def test_a_writer_that_is_refused_leaves_the_open_one(blobs: Blobs) -> None:
    digest, data = data_of(100)
    first = await blobs.open_write(CONVERSATION, digest, 100, 0)
    await first.write(data[:50])
    for offset, size in ((0, 100), (40, 100), (50, 99)):
        with pytest.raises(BlobOffsetInvalid, match="50 of 100"):
            await blobs.open_write(CONVERSATION, digest, size, offset)
    assert (await blobs.stat(CONVERSATION, digest)).committed_bytes == 50
    assert (await first.write(data[50:])).complete


async def test_a_cancelled_write_leaves_an_upload_that_resumes(blobs: Blobs) -> None:
    digest, data = data_of(4_000_000)
    writer = await blobs.open_write(CONVERSATION, digest, len(data), 0)
    task = asyncio.create_task(writer.write(data[:3_000_000]))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    state = await blobs.stat(CONVERSATION, digest)
    assert not state.complete
    assert (await put(blobs, digest, data, state.committed_bytes)).complete
    assert await get(blobs, digest) == data


async def test_a_damaged_blob_is_never_served_whole(blobs: Blobs, tmp_path: Path) -> None:
    digest, data = data_of(1_000_000)
    await put(blobs, digest, data)
    file = tmp_path / "blobs" / CONVERSATION.hex() / digest.hex()
    flip_byte(file, data[500_000:500_100])
    received = []
    with pytest.raises(BlobMissing):
        async for chunk in blobs.read(CONVERSATION, digest, 0):
            received.append(chunk)
    assert sum(map(len, received)) < len(data)
    assert await blobs.stat(CONVERSATION, digest) == NOTHING
    with pytest.raises(BlobMissing):
        await get(blobs, digest)
    await put(blobs, digest, data)
    assert await get(blobs, digest) == data


async def test_a_truncated_blob_is_never_served(blobs: Blobs, tmp_path: Path) -> None:
    digest, data = data_of(100)
    await put(blobs, digest, data)
    (tmp_path / "blobs" / CONVERSATION.hex() / digest.hex()).write_bytes(b"")
    with pytest.raises(BlobMissing):
        await get(blobs, digest)


async def test_reading_beyond_the_end_is_refused(blobs: Blobs) -> None:
    digest, data = data_of(10)
    await put(blobs, digest, data)
    with pytest.raises(BlobOffsetInvalid):
        await get(blobs, digest, 11)


async def test_a_digest_of_another_length_is_refused(blobs: Blobs) -> None:
    for digest in (b"", b"../" * 8, bytes(33)):
        with pytest.raises(ArgumentInvalid):
            await blobs.stat(CONVERSATION, Digest(digest))


async def test_deleting_removes_blobs_and_uploads_of_one_conversation(blobs: Blobs) -> None:
    digest, data = data_of(100)
    half, rest = data_of(200)
    await put(blobs, digest, data)
    writer = await blobs.open_write(CONVERSATION, half, 200, 0)
    await writer.write(rest[:100])
    async with await blobs.open_write(OTHER, digest, 100, 0) as kept:
        await kept.write(data)
    await blobs.delete(CONVERSATION)
    await blobs.delete(CONVERSATION)
    assert await blobs.stat(CONVERSATION, digest) == NOTHING
    assert await blobs.stat(CONVERSATION, half) == NOTHING
    assert (await blobs.stat(OTHER, digest)).complete
    with pytest.raises(BlobOffsetInvalid):
        await writer.write(rest[100:])


async def test_blob_files_are_private(blobs: Blobs, tmp_path: Path) -> None:
    digest, data = data_of(10)
    await put(blobs, digest, data)

    def modes() -> list[int]:
        folder = tmp_path / "blobs" / CONVERSATION.hex()
        paths = (folder.parent, folder, folder / digest.hex())
        return [path.stat().st_mode & 0o777 for path in paths]

    assert modes() == [0o700, 0o700, 0o600]


async def test_a_disk_that_refuses_is_a_store_error(tmp_path: Path) -> None:
    await asyncio.to_thread((tmp_path / "file").write_bytes, b"in the way")
    digest, _ = data_of(10)
    with pytest.raises(StoreError):
        await Blobs(tmp_path / "file").open_write(CONVERSATION, digest, 10, 0)


async def test_blobs_of_one_conversation_share_a_quota(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "blobs", total_bytes_max=100)
    (first, data), (second, more) = data_of(60), data_of(41)
    await put(blobs, first, data)
    with pytest.raises(QuotaExceeded):
        await put(blobs, second, more)
    announced, _ = data_of(40)
    tiny, _ = data_of(1)
    async with await blobs.open_write(CONVERSATION, announced, 40, 0):
        with pytest.raises(QuotaExceeded):
            await blobs.open_write(CONVERSATION, tiny, 1, 0)
    elsewhere = ConversationId(b"e" * 32)
    async with await blobs.open_write(elsewhere, second, len(more), 0) as writer:
        assert (await writer.write(more)).complete
    assert (await put(blobs, first, data, len(data))).complete


async def test_nothing_is_written_for_a_deleted_conversation(blobs: Blobs) -> None:
    digest, data = data_of(10)
    await blobs.delete(CONVERSATION)
    with pytest.raises(ConversationDeleted):
        await put(blobs, digest, data)
    assert await blobs.stat(CONVERSATION, digest) == NOTHING
