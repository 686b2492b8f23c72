"""A hub looks at the ticket of a call before it receives the request."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from antiphon.v1 import blob_pb2, invitation_pb2, sync_pb2
from tests.support.callers import ServedHub, refused, serve_hub

METHODS = [
    f"/{service.full_name}/{method.name}"
    for file in (sync_pb2, blob_pb2, invitation_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
    if method.name != "Authenticate"
]


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[ServedHub]:
    async with serve_hub(tmp_path) as built:
        yield built


async def test_no_call_receives_the_request_of_a_stranger(served: ServedHub) -> None:
    async with (
        grpc.aio.insecure_channel(served.hub.address, options=[("other", 1)]) as channel,
        asyncio.timeout(20),
    ):
        for method in METHODS:
            call = channel.stream_stream(method)()  # whose request never comes
            assert await refused(call) == "TICKET_INVALID", method


async def test_a_call_is_counted_before_its_request_comes(served: ServedHub) -> None:
    calls = served.hub.driver.calls
    calls._per_key_max = 2
    resolve = served.owner.calls.channel.stream_unary("/antiphon.v1.SyncService/Resolve")
    may_send = asyncio.Event()

    async def late() -> AsyncIterator[bytes]:
        await may_send.wait()
        yield sync_pb2.ResolveRequest(
            conversation=served.id, id=served.genesis.id
        ).SerializeToString()

    async with asyncio.timeout(20):
        waiting = [resolve(late(), metadata=served.owner.metadata) for _ in range(2)]
        while calls._total < 2:  # noqa: ASYNC110  # no event signals changes inside a hub
            await asyncio.sleep(0)
        assert await refused(resolve(late(), metadata=served.owner.metadata)) == "RATE_LIMITED"
        may_send.set()
        await asyncio.gather(*waiting)
