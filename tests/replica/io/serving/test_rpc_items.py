"""The wrappers of handlers: each parses alike, whatever streams its method has."""

from collections.abc import AsyncIterator

import grpc
import pytest

from antiphon.v1 import log_pb2
from antiphon.v1 import sync_pb2 as pb
from replica import limits
from replica.errors import AntiphonError
from replica.io import rpc
from replica.io.serving.grpc_server import add_services, bounded_server, listen
from replica.io.serving.status import from_rpc_error

FULL = pb.PushRequest(entries=[log_pb2.Entry()] * (limits.ENTRIES_PER_FRAME_MAX + 1))


async def answer(request: pb.PushRequest, context: rpc.Context) -> pb.PushResponse:
    raise AssertionError("it was parsed")


async def write(request: pb.PushRequest, context: rpc.Context) -> None:
    await answer(request, context)


async def answers(request: pb.PushRequest, context: rpc.Context) -> AsyncIterator[pb.PushResponse]:
    yield await answer(request, context)


async def answer_all(
    requests: AsyncIterator[pb.PushRequest], context: rpc.Context
) -> pb.PushResponse:
    return await answer(await anext(requests), context)


async def answers_all(
    requests: AsyncIterator[pb.PushRequest], context: rpc.Context
) -> AsyncIterator[pb.PushResponse]:
    yield await answer(await anext(requests), context)


@pytest.mark.parametrize(
    ("wrap", "handler", "method"),
    [
        (rpc.unary, answer, "unary_unary"),
        (rpc.writing_stream, write, "unary_stream"),
        (rpc.server_stream, answers, "unary_stream"),
        (rpc.client_stream, answer_all, "stream_unary"),
        (rpc.both_streams, answers_all, "stream_stream"),
    ],
)
async def test_items_are_counted_before_they_are_parsed_and_so_is_the_refusal(
    wrap, handler, method: str
) -> None:
    refused: list[AntiphonError] = []

    async def note(_context: rpc.Context, error: AntiphonError) -> None:
        refused.append(error)

    server = bounded_server(calls_max=2)
    address = listen(server, "127.0.0.1:0")
    handlers = {"Call": wrap(pb.PushRequest, handler, note)}
    add_services(server, {"Test": handlers}, rpc.anybody)
    await server.start()
    data = FULL.SerializeToString()
    async with grpc.aio.insecure_channel(address) as channel:
        sent = [data] if method.startswith("stream") else data
        call = getattr(channel, method)("/Test/Call")(sent)
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await (anext(aiter(call)) if method.endswith("stream") else call)
    await server.stop(None)
    assert from_rpc_error(ended.value).reason == "FRAME_TOO_LARGE"
    assert [error.reason for error in refused] == ["FRAME_TOO_LARGE"]
