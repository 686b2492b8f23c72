"""A hub looks at the ticket of a call before it receives the request."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import grpc
import pytest

from antiphon.v1 import blob_pb2, invitation_pb2, sync_pb2
from replica.ids import ConversationId, PublicKey
from replica.limits import BURST_UNITS
from replica.link.messages import Hello
from syncd.bounds.bucket import Bucket
from syncd.bounds.budget import STRANGERS
from tests.support.callers import ServedHub, refused, serve_hub, until
from tests.support.writers import Writer

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
        await until(lambda: calls._total == 2)
        assert await refused(resolve(late(), metadata=served.owner.metadata)) == "RATE_LIMITED"
        may_send.set()
        await asyncio.gather(*waiting)


UNANSWERED = [
    "/antiphon.v1.SyncService/Resolve",
    "/antiphon.v1.SyncService/Link",
    "/antiphon.v1.SyncService/Authenticate",
    "/grpc.health.v1.Health/Check",
    "/there.is/none",
]


@pytest.mark.parametrize("method", UNANSWERED)
async def test_what_no_key_pays_for_is_answered_in_its_turn(served: ServedHub, method: str) -> None:
    """Else two connections that call again at once keep a hub busy."""
    turns = served.hub.invitations._gate._turns
    turns._bucket = Bucket(per_s=1e-6, most=0)
    async with (
        grpc.aio.insecure_channel(served.hub.address, options=[("other", 1)]) as channel,
        asyncio.timeout(20),
    ):
        call = asyncio.ensure_future(answer_of(channel.stream_unary(method)(iter([b""]))))
        await until(lambda: turns._waiting == 1)
        await served.say("calls of a key go on")
        assert not call.done()
        turns._bucket = Bucket(per_s=1_000.0, most=10)
        turns._grant()
        await call


async def test_strangers_pay_for_calls_without_a_key(served: ServedHub) -> None:
    throttle, unknown = served.hub.driver.throttle, ConversationId(bytes(32))
    stub = served.stranger.sync
    request = sync_pb2.AuthenticateRequest(client_key=bytes(32), client_nonce=bytes(32))
    before = throttle._budget._accounts.of(STRANGERS, 0.0)
    await stub.Authenticate(request)
    assert throttle._budget._accounts.of(STRANGERS, 0.0) > before
    throttle.charge(Writer(9).public, unknown, sent_bytes=500 * BURST_UNITS)
    assert await refused(stub.Authenticate(request)) == "RATE_LIMITED"


async def answer_of(call: "grpc.aio.StreamUnaryCall[object, object]") -> None:
    """Wait for an answer, whatever it is."""
    with suppress(grpc.aio.AioRpcError):
        await call


async def test_a_call_whose_request_is_there_gives_its_place_to_others(
    served: ServedHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a flood of requests would end all that wait for their step."""
    gate, may_go, waits = served.hub.invitations._gate, asyncio.Event(), asyncio.Event()
    step = served.hub.driver.pacer.step

    async def wait(key: PublicKey) -> None:
        waits.set()
        await may_go.wait()
        await step(key)

    monkeypatch.setattr(served.hub.driver.pacer, "step", wait)
    request = sync_pb2.AuthenticateRequest(client_key=bytes(32), client_nonce=bytes(32))
    call = served.stranger.sync.Authenticate(request)
    async with asyncio.timeout(20):
        await waits.wait()
        assert not gate._keyless._waiting
        may_go.set()
        assert (await call).challenge.hub_key == served.hub.key


async def test_streams_are_noted_as_they_come(
    served: ServedHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = list[PublicKey]()
    monkeypatch.setattr(served.hub.driver.pacer, "note_stream", noted.append)
    await served.say("a call, and no stream")
    assert not noted
    request = sync_pb2.WatchRequest(conversation=served.id)
    watch = served.owner.sync.Watch(request, metadata=served.owner.metadata)
    await watch.read()
    assert noted == [served.writer.public]
    link = served.owner.link()
    await link.send(Hello((1,)))
    await link.read()
    assert noted == [served.writer.public] * 2
    link.call.cancel()
    watch.cancel()
