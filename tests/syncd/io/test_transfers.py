"""Transfers of blobs hold no call, descriptor or memory of a hub for long (spec/11-limits)."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from antiphon.v1 import blob_pb2, invitation_pb2, sync_pb2
from antiphon.v1.invitation_pb2_grpc import InvitationServiceStub
from replica import limits
from replica.ids import Digest, PublicKey
from replica.io.calls.blob_calls import BlobCalls
from replica.log import entry_to_pb
from syncd.bounds.budget import UPLOAD_UNITS
from syncd.bounds.shares import Payer
from syncd.calls import queries
from tests.support.callers import ServedHub, refused, serve_hub, until


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[ServedHub]:
    async with serve_hub(tmp_path) as built:
        yield built


async def test_a_silent_write_without_a_ticket_ends_at_once(served: ServedHub) -> None:
    async with asyncio.timeout(10):
        assert await refused(served.stranger.blobs.Write()) == "TICKET_INVALID"


async def test_a_silent_write_ends_in_time(
    served: ServedHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "IDLE_TIMEOUT_S", 0.05)
    call = served.owner.blobs.Write(metadata=served.owner.metadata)
    async with asyncio.timeout(10):
        assert await refused(call) == "LINK_IDLE"
    begun = blob_pb2.WriteRequest(
        conversation=served.id, digest=bytes(32), size_bytes=9, data=b"half"
    )
    call = served.owner.blobs.Write(metadata=served.owner.metadata)
    await call.write(begun)
    async with asyncio.timeout(10):
        assert await refused(call) == "LINK_IDLE"
    assert not served.hub.driver.blobs._lasting._writers, "its descriptor is free again"


async def test_a_key_has_a_number_of_transfers_only(
    served: ServedHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served.hub.driver.transfers, "_per_key_max", 1)
    first = served.owner.blobs.Write(metadata=served.owner.metadata)
    await first.write(blob_pb2.WriteRequest(conversation=served.id, digest=bytes(32), size_bytes=9))
    async with asyncio.timeout(10):
        await until(lambda: bool(served.hub.driver.transfers._total))
        second = served.owner.blobs.Write(metadata=served.owner.metadata)
        assert await refused(second) == "RATE_LIMITED"
    first.cancel()


async def test_an_upload_is_charged_for_its_files_however_small_it_is(
    served: ServedHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    charged: list[int] = []
    budget = served.hub.driver.throttle._budget
    charge = budget.charge

    def noted(payer: Payer, units: int, now: float, *, reserved: bool = False) -> None:
        charged.append(units)
        charge(payer, units, now, reserved=reserved)

    monkeypatch.setattr(budget, "charge", noted)
    content = b"small"
    digest = hashlib.sha256(content).digest()
    call = served.owner.blobs.Write(metadata=served.owner.metadata)
    await call.write(
        blob_pb2.WriteRequest(conversation=served.id, digest=digest, size_bytes=5, data=content)
    )
    await call.done_writing()
    assert (await call).complete
    assert UPLOAD_UNITS in charged


async def test_a_key_has_a_number_of_calls_only(
    served: ServedHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served.hub.driver.calls, "_per_key_max", 0)
    stat = blob_pb2.StatRequest(conversation=served.id, digest=bytes(32))
    assert await refused(served.owner.blobs.Stat(stat, metadata=served.owner.metadata)) == (
        "RATE_LIMITED"
    )
    push = sync_pb2.PushRequest(conversation=served.id)
    assert await refused(served.owner.sync.Push(push, metadata=served.owner.metadata)) == (
        "RATE_LIMITED"
    )


async def test_calls_that_wait_for_a_step_are_counted(
    served: ServedHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each holds its request: a hub whose steps take long must not hold any number of them."""
    may_go = asyncio.Event()

    async def step(_key: object) -> None:
        await may_go.wait()

    driver = served.hub.driver
    monkeypatch.setattr(driver.pacer, "step", step)
    monkeypatch.setattr(driver.calls, "_per_key_max", 1)
    monkeypatch.setattr(driver.transfers, "_per_key_max", 1)
    sync, blobs, metadata = served.owner.sync, served.owner.blobs, served.owner.metadata
    push = sync_pb2.PushRequest(
        conversation=served.id, entries=[entry_to_pb(entry) for entry in served.entries]
    )
    first = sync.Push(push, metadata=metadata)
    async with asyncio.timeout(10):
        await until(lambda: driver.calls._total == 1)
        assert await refused(sync.Push(push, metadata=metadata)) == "RATE_LIMITED"
        watch = sync_pb2.WatchRequest(conversation=served.id)
        assert await refused(sync.Watch(watch, metadata=metadata)) == "RATE_LIMITED"
        fetch = sync_pb2.FetchRequest(conversation=served.id)
        fetched = sync.Fetch(fetch, metadata=metadata)
        await until(lambda: driver.transfers._total == 1)
        assert await refused(sync.Fetch(fetch, metadata=metadata)) == "RATE_LIMITED"
        read = blob_pb2.ReadRequest(conversation=served.id, digest=bytes(32))
        assert await refused(blobs.Read(read, metadata=metadata)) == "RATE_LIMITED"
    fetched.cancel()
    may_go.set()
    assert len((await first).outcomes) == len(served.entries)


async def test_a_watch_that_waits_long_for_its_step_is_served(
    served: ServedHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, beats = asyncio.Event(), asyncio.Event()
    pacer = served.hub.driver.pacer
    step = pacer.step

    async def wait(key: PublicKey) -> None:
        waits.set()
        await beats.wait()
        await step(key)

    monkeypatch.setattr(limits, "HEARTBEAT_S", 0.0)  # its time is over while it waits
    monkeypatch.setattr(pacer, "step", wait)
    request = sync_pb2.WatchRequest(conversation=served.id)
    call = served.owner.sync.Watch(request, metadata=served.owner.metadata)
    async with asyncio.timeout(10):
        await waits.wait()
        turns = iter(range(20))
        await until(lambda: next(turns, None) is None)
        beats.set()
        response = await call.read()
    call.cancel()
    assert response.WhichOneof("event") in ("entries", "hint", "beat")


async def unread_blob(served: ServedHub) -> "grpc.aio.UnaryStreamCall[object, object]":
    """Read a blob of several messages up to the first."""
    content = bytes(2_000_000)
    calls = BlobCalls(served.owner.calls)
    digest = Digest(hashlib.sha256(content).digest())
    await calls.write(served.id, digest, len(content), lambda at: content[at : at + 262_144])
    request = blob_pb2.ReadRequest(conversation=served.id, digest=digest)
    call = served.owner.blobs.Read(request, metadata=served.owner.metadata)
    await call.read()
    return call


async def test_transfers_whose_readers_read_nothing_keep_nobody_out(
    served: ServedHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    transfers = served.hub.driver.transfers
    monkeypatch.setattr(transfers, "_total_max", 2)
    stalled = [await unread_blob(served) for _ in range(2)]
    assert transfers._total == 2
    fetch = sync_pb2.FetchRequest(conversation=served.id)
    async with asyncio.timeout(10):
        call = served.stranger.sync.Fetch(fetch, metadata=served.stranger.metadata)
        assert await refused(call) == "CONVERSATION_NOT_FOUND"  # it had a place
        assert await refused(stalled[0]) == "RATE_LIMITED"
        while await stalled[1].read() is not grpc.aio.EOF:
            pass


async def test_a_transfer_ends_whose_reader_was_too_slow(
    served: ServedHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = await unread_blob(served)
    monkeypatch.setattr(limits, "WRITE_TIMEOUT_S", -1.0)
    async with asyncio.timeout(10):
        assert await refused(call) == "SLOW_READER"


async def test_calls_on_mailboxes_are_counted(
    served: ServedHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served.hub.driver.calls, "_per_key_max", 0)
    stub: Any = InvitationServiceStub(served.stranger.calls.channel)
    deposit = invitation_pb2.DepositRequest(mailbox=bytes(32), proof=bytes(32))
    for call in (
        stub.Deposit(deposit, metadata=served.stranger.metadata),
        stub.Collect(invitation_pb2.CollectRequest(), metadata=served.stranger.metadata),
    ):
        assert await refused(call) == "RATE_LIMITED"


async def test_a_push_that_is_one_too_many_is_refused_before_it_is_parsed(
    served: ServedHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To parse a megabyte takes longer than all else that a refusal needs."""
    monkeypatch.setattr(served.hub.driver.calls, "_per_key_max", 0)
    push = served.owner.calls.channel.unary_unary("/antiphon.v1.SyncService/Push")
    assert await refused(push(b"\xff no message", metadata=served.owner.metadata)) == "RATE_LIMITED"
    assert await refused(push(b"\xff no message")) == "TICKET_INVALID"


async def test_calls_that_send_no_request_are_bounded_per_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CONNECTION_CALLS_MAX", 2)
    request = sync_pb2.HostsRequest()
    async with serve_hub(tmp_path, links_per_key_max=1) as served, asyncio.timeout(20):
        metadata, channel = served.owner.metadata, served.owner.calls.channel
        push = channel.stream_unary("/antiphon.v1.SyncService/Push")
        silent = [push(metadata=metadata) for _ in range(2)]
        await until(lambda: served.hub.driver.calls._total == 2)
        late = served.owner.sync.Hosts(request, metadata=metadata)
        for _ in range(20):  # on another connection they go on
            await served.stranger.sync.Hosts(request, metadata=served.stranger.metadata)
        assert not late.done()
        for call in silent:
            await call.write(sync_pb2.PushRequest(conversation=served.id).SerializeToString())
            await call
        await late


async def test_a_fetch_reads_each_response_in_a_step(
    served: ServedHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else eight of them read for longer than a step in each turn of the loop."""
    events, pacer, fetch = list[str](), served.hub.driver.pacer, queries.fetch
    step, charge = pacer.step, served.hub.driver.throttle.charge

    def charged(*args: Any, **named: Any) -> None:
        charge(*args, **named)
        events.append("charge")

    async def noted(key: PublicKey) -> None:
        await step(key)
        events.append("step")

    def reading(*args: Any, **named: Any) -> Iterator[queries.Fetched]:
        for response in fetch(*args, **named):
            events.append("read")
            yield response

    monkeypatch.setattr(pacer, "step", noted)
    monkeypatch.setattr(served.hub.driver.throttle, "charge", charged)
    monkeypatch.setattr(queries, "fetch", reading)
    monkeypatch.setattr(queries, "FETCHED_ENTRIES", 1)
    for text in ("a", "b"):
        await served.say(text)
    ids = [entry.id for entry in served.entries[-2:]]
    request = sync_pb2.FetchRequest(conversation=served.id, ids=ids)
    events.clear()
    call = served.owner.sync.Fetch(request, metadata=served.owner.metadata)
    assert len([response async for response in call]) == 2
    reads = [at for at, event in enumerate(events) if event == "read"]
    assert len(reads) == 2
    assert all(events[at - 1] == "step" for at in reads)
