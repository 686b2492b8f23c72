"""The client of BlobService at a real hub."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from antiphon.v1 import blob_pb2 as pb
from antiphon.v1.blob_pb2_grpc import BlobServiceStub
from replica import limits
from replica.ids import Digest
from replica.io import BlobCalls, BlobState, rpc
from replica.io.calls.blob_calls import OFFSET_TRIES, _requests
from replica.refusals import BlobOffsetInvalid, HubUnreachable, SlowReader
from syncd.io import blob_service
from tests.support.callers import ServedHub, serve_hub, until

DATA = bytes(range(256)) * 2_000
DIGEST = Digest(hashlib.sha256(DATA).digest())
PIECE = 100_000


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[ServedHub]:
    async with serve_hub(tmp_path) as hub:
        yield hub


def read(at: int) -> bytes:
    return DATA[at : at + PIECE]


class OpenUpload:
    """An upload whose client sends a piece and then neither more nor an end."""

    def __init__(self, served: ServedHub, folder: Path, offset: int) -> None:
        self._served, self._folder, self._offset = served, folder / "hub" / "blobs", offset
        stub = BlobServiceStub(served.owner.calls.channel)
        call = stub.Write(self._requests(), metadata=served.owner.metadata)
        self._answer = asyncio.ensure_future(rpc.typed(call))

    async def _requests(self) -> AsyncIterator[pb.WriteRequest]:
        yield pb.WriteRequest(
            conversation=self._served.id,
            digest=DIGEST,
            size_bytes=len(DATA),
            offset=self._offset,
        )
        yield pb.WriteRequest(data=read(self._offset))
        await asyncio.Event().wait()

    async def reach(self, size: int) -> None:
        """Wait until the file of the upload has so many bytes, which are not synced."""
        parts = self._folder.glob
        await until(lambda: [part.stat().st_size for part in parts("*/*.part")] == [size])

    async def end(self) -> None:
        self._answer.cancel()
        await asyncio.gather(self._answer, return_exceptions=True)


async def test_a_client_goes_on_behind_its_own_upload_that_is_still_open(
    served: ServedHub, tmp_path: Path
) -> None:
    """What the open one has not synced is committed when the new one replaces it."""
    before = OpenUpload(served, tmp_path, 0)
    await before.reach(PIECE)
    asked: list[int] = []

    def rest(at: int) -> bytes:
        asked.append(at)
        return read(at)

    blobs = BlobCalls(served.owner.calls)
    assert (await blobs.stat(served.id, DIGEST)).committed_bytes == 0
    await blobs.write(served.id, DIGEST, len(DATA), rest)
    assert await blobs.stat(served.id, DIGEST) == BlobState(True, len(DATA), len(DATA))
    assert PIECE in asked
    await before.end()


async def test_of_two_writers_of_one_blob_one_goes_on_to_its_end(served: ServedHub) -> None:
    blobs = BlobCalls(served.owner.calls)
    writes = [blobs.write(served.id, DIGEST, len(DATA), read) for _ in range(3)]
    ended = await asyncio.gather(*writes, return_exceptions=True)
    assert None in ended
    others = [error for error in ended if error is not None]
    assert all(isinstance(error, (BlobOffsetInvalid, HubUnreachable)) for error in others)
    assert (await blobs.stat(served.id, DIGEST)).complete


async def test_a_client_gives_up_where_others_always_commit_more(
    served: ServedHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another upload commits a piece behind each answer to Stat."""
    blobs, stat, opened = BlobCalls(served.owner.calls), BlobCalls.stat, []

    async def outdated(self: BlobCalls, *blob: object) -> BlobState:
        state = await stat(self, *blob)  # type: ignore[arg-type]
        other = OpenUpload(served, tmp_path, state.committed_bytes)
        await other.reach(state.committed_bytes + PIECE)
        opened.append(other)
        return state

    monkeypatch.setattr(BlobCalls, "stat", outdated)
    with pytest.raises((BlobOffsetInvalid, HubUnreachable)):
        await blobs.write(served.id, DIGEST, len(DATA), read)
    assert len(opened) == OFFSET_TRIES
    for other in opened:
        await other.end()


async def test_a_hub_that_reads_nothing_does_not_hold_an_upload(
    served: ServedHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unread(_requests: AsyncIterator[pb.WriteRequest], _silence: str) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(blob_service, "next_message", unread)
    monkeypatch.setattr(limits, "WRITE_TIMEOUT_S", 0.2)
    async with asyncio.timeout(20):
        with pytest.raises(SlowReader):
            await BlobCalls(served.owner.calls).write(served.id, DIGEST, len(DATA), read)


async def test_the_time_of_an_upload_begins_anew_with_each_message_and_for_the_answer() -> None:
    extended, messages = [], 0

    def extend() -> None:
        extended.append(messages)

    async for _ in _requests(pb.WriteRequest(size_bytes=len(DATA)), read, extend):
        messages += 1
    assert messages == 2 + len(DATA) // PIECE
    assert extended == list(range(1, messages + 1))
