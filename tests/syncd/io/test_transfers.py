"""Transfers of blobs hold no call, descriptor or memory of a hub for long (spec/11-limits)."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from antiphon.v1 import blob_pb2, sync_pb2
from replica import limits
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
        assert await refused(second) == "QUOTA_EXCEEDED"
    first.cancel()


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
