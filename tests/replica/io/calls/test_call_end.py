"""A peer that ends a call while it is written to is understood."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc
import pytest

from replica.errors import AntiphonError
from replica.io import status
from replica.io.calls.call_end import CallEnd, typed_end
from replica.refusals import HubUnreachable, QuotaExceeded

PART = bytes(200_000)
TIMES = 20
"""gRPC replaced the status each time of a stream of answers, and once in 30 else."""


class _Peer(grpc.GenericRpcHandler):
    """Reads some parts of a call, and ends it."""

    def __init__(self, error: AntiphonError | None) -> None:
        self._error = error

    def service(self, handler_call_details: Any) -> Any:
        if handler_call_details.method == "/test/Both":
            return grpc.stream_stream_rpc_method_handler(self._end)
        return grpc.stream_unary_rpc_method_handler(self._end)

    async def _end(self, _parts: Any, context: Any) -> None:
        for _ in range(5):
            await context.read()
        if self._error is not None:
            await status.abort(context, self._error)


@asynccontextmanager
async def peer(error: AntiphonError | None) -> AsyncIterator[grpc.aio.Channel]:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((_Peer(error),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    await server.stop(None)


async def _parts() -> AsyncIterator[bytes]:
    for _ in range(200):
        yield PART


async def _written(channel: grpc.aio.Channel) -> None:
    call: Any = channel.stream_stream("/test/Both")()
    try:
        async with typed_end(call, "the answer"):
            async for part in _parts():
                await call.write(part)
            await call.done_writing()
            await call.read()
    finally:
        call.cancel()


async def _iterated(channel: grpc.aio.Channel) -> None:
    call: Any = channel.stream_unary("/test/One")(_parts())
    async with typed_end(call):
        await call


@pytest.mark.parametrize("upload", [_written, _iterated])
async def test_the_peer_s_refusal_is_raised_where_a_write_fails_by_it(upload: Any) -> None:
    async with peer(QuotaExceeded("16 bytes are left")) as channel:
        for _ in range(TIMES):
            with pytest.raises(QuotaExceeded, match="16 bytes are left"):
                await upload(channel)


async def test_a_peer_that_ends_a_call_without_a_refusal_is_said_to_do_so() -> None:
    async with peer(None) as channel:
        with pytest.raises(HubUnreachable, match="the call ended before the answer"):
            await _written(channel)


async def test_a_peer_that_is_gone_is_no_refusal() -> None:
    async with grpc.aio.insecure_channel("127.0.0.1:1") as channel:
        with pytest.raises(HubUnreachable, match="unavailable"):
            await _written(channel)


async def test_other_errors_of_the_block_are_not_the_peer_s() -> None:
    async with peer(None) as channel:
        call: Any = channel.stream_stream("/test/Both")()
        with pytest.raises(asyncio.InvalidStateError):
            async with typed_end(call):
                asyncio.get_running_loop().create_future().result()
        call.cancel()


async def test_a_read_gets_the_status_of_the_peer_too() -> None:
    """A write that came late replaced it, and a read raised that of gRPC (the kit's raw link)."""
    seen = set()
    async with peer(QuotaExceeded("no place")) as channel:
        for _ in range(TIMES):
            call: Any = channel.stream_stream("/test/Both")()
            end = CallEnd(call)
            with suppress(grpc.aio.AioRpcError, grpc.aio.InternalError, asyncio.InvalidStateError):
                async for part in _parts():
                    await call.write(part)
            try:
                await call.read()
            except grpc.aio.AioRpcError as error:
                seen.add((await end.of_peer(error)).details())
    assert seen == {"no place"}
