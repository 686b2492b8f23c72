"""What a server asks of a call before it parses its request."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest

from antiphon.v1 import sync_pb2 as pb
from replica import limits
from replica.io import rpc
from replica.io.serving.grpc_server import add_services, bounded_server, listen
from replica.io.serving.keyless import Keyless
from tests.support.callers import refused

SMALL = pb.DeleteRequest(conversation=bytes(32)).SerializeToString()


async def _delete(_request: pb.DeleteRequest, _context: rpc.Context) -> pb.DeleteResponse:
    return pb.DeleteResponse(entries=1)


@pytest.fixture
async def address() -> AsyncIterator[str]:
    server = bounded_server()
    found = listen(server, "127.0.0.1:0")
    handlers = {"Delete": rpc.unary(pb.DeleteRequest, _delete)}
    add_services(server, {"Test": handlers}, Keyless().admit)
    await server.start()
    yield found
    await server.stop(None)


@asynccontextmanager
async def _channel(
    address: str, compression: grpc.Compression = grpc.Compression.NoCompression
) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(address, compression=compression) as channel:
        yield channel


@pytest.mark.parametrize("algorithm", [grpc.Compression.Gzip, grpc.Compression.Deflate])
async def test_a_compressed_request_is_refused_unread(
    address: str, algorithm: grpc.Compression
) -> None:
    """A kilobyte of it would be a message of a megabyte."""
    async with _channel(address, algorithm) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await channel.unary_unary("/Test/Delete")(SMALL)
    assert error.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert "is disabled" in (error.value.details() or "")


async def test_a_request_has_the_bytes_of_its_kind_at_most(address: str) -> None:
    padded = SMALL + b"\x7a\x80\x20" + bytes(limits.REQUEST_BYTES_MAX)
    async with _channel(address) as channel:
        call = channel.unary_unary("/Test/Delete")
        assert await call(SMALL)
        assert await refused(call(padded)) == "FRAME_TOO_LARGE"


async def test_a_request_that_does_not_come_in_time_ends_its_call(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REQUEST_TIMEOUT_S", 0.05)
    async with _channel(address) as channel, asyncio.timeout(20):
        assert await refused(channel.stream_unary("/Test/Delete")()) == "LINK_IDLE"


async def test_a_call_without_a_request_is_refused(address: str) -> None:
    async def nothing() -> AsyncIterator[bytes]:
        return
        yield b""

    async with _channel(address) as channel, asyncio.timeout(20):
        call = channel.stream_unary("/Test/Delete")
        assert await refused(call(nothing())) == "FRAME_MALFORMED"


async def test_the_iterator_of_requests_is_not_begun() -> None:
    """One that is not read to its end would be closed by a task of its own, at each call."""

    class Call:
        async def read(self) -> bytes:
            return SMALL

    call = rpc.unary(pb.DeleteRequest, _delete).stream_unary
    assert pb.DeleteResponse.FromString(await call(None, Call())).entries == 1


async def test_an_error_of_grpc_leaves_no_frames_behind():
    """They would wait for a pass of the garbage collector, with all that the call holds."""
    held: list[weakref.ref[set[int]]] = []

    async def call() -> None:
        what_the_call_holds = set[int]()
        held.append(weakref.ref(what_the_call_holds))
        async with rpc.Answering(None):  # type: ignore[arg-type]  # gRPC has ended the call
            raise grpc.aio.InternalError

    gc.collect()
    gc.disable()
    try:
        with pytest.raises(asyncio.CancelledError):
            await call()
        await asyncio.sleep(0)
        assert held[0]() is None
    finally:
        gc.enable()
