"""Peers that stall, send invalid requests or are revoked, over a real hub on loopback."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from antiphon.v1 import blob_pb2, sync_pb2
from replica import limits
from replica.errors import StoreError
from replica.ids import ConversationId, Track
from replica.io.blobs.blobs import Blobs
from replica.io.store.store import Store
from replica.link.messages import Close, Entries, Hello, Open, Welcome
from replica.log.body import Cut, Member, Revocation
from syncd.hub import Hub
from syncd.io import outbox as outbox_module
from syncd.io.config import HubConfig
from syncd.io.driver import HubDriver
from syncd.io.server import start
from syncd.policy import Policy
from tests.support.callers import ServedHub, refused, serve_hub, until
from tests.support.writers import Writer, said

HELLO = Hello((1,))
NOWHERE = ConversationId(b"\5" * 32)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[ServedHub]:
    async with serve_hub(tmp_path, links_per_key_max=1) as built:
        for _ in range(4):
            await built.say("x" * 400_000)  # more than gRPC buffers for a reader
        yield built


def links(served: ServedHub) -> int:
    return len(served.hub.driver.hub.links)


async def unread_link(served: ServedHub) -> Any:
    link = served.owner.link()
    await link.send(HELLO, Open(served.id, bytes(32), ()))
    return link.call


async def unread_watch(served: ServedHub) -> Any:
    request = sync_pb2.WatchRequest(conversation=served.id)
    return served.owner.sync.Watch(request, metadata=served.owner.metadata)


# --- peers that do not read ----------------------------------------------------------


@pytest.mark.parametrize("unread", [unread_link, unread_watch])
async def test_a_peer_that_does_not_read_is_dropped_with_a_reason(
    served: ServedHub,
    monkeypatch: pytest.MonkeyPatch,
    unread: Callable[[ServedHub], Awaitable[Any]],
):
    monkeypatch.setattr(limits, "WRITE_TIMEOUT_S", 0.05)
    call = await unread(served)
    await until(lambda: links(served) == 1)
    await until(lambda: links(served) == 0)
    assert await refused(served.owner.link().call) == "RATE_LIMITED"
    assert await refused(call) == "SLOW_READER"


async def test_the_queue_of_one_stream_is_bounded_in_bytes(
    served: ServedHub, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "OUTBOX_BYTES_MAX", 100_000)
    assert await refused(await unread_link(served)) == "SLOW_READER"
    assert links(served) == 0


async def test_frames_of_a_peer_that_does_not_read_are_not_read(
    served: ServedHub, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(outbox_module, "LOW_WATER_BYTES", 300_000)
    monkeypatch.setattr("replica.link.exchange.grant_bytes", lambda: limits.CREDIT_BYTES // 4)
    link = served.owner.link()
    await link.send(HELLO, Open(served.id, bytes(32), ()))
    hub = served.hub.driver.hub
    await until(lambda: any(link.channels for link in hub.links.values()))
    await served.hub.driver.performer.flush()
    log = hub.shelf[served.id].log
    entry = served.writer.write(served.id, said("later"), parents=[served.entries[-1]])
    await link.send(Entries(served.id, (entry,)))
    for _ in range(3):
        found = await served.owner.calls.resolve(served.id, entry.id)
        assert found.fate == sync_pb2.FATE_UNKNOWN
    while entry.id not in log.entries:
        assert await link.read() is not None


async def test_a_link_is_read_no_faster_than_the_disk_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "BACKLOG_BYTES_MAX", 1000)
    writer = Writer(1)
    genesis = writer.genesis()
    async with await Store.open(tmp_path / "log.db") as store:
        driver = HubDriver(Hub(writer.public, Policy()), store, Blobs(tmp_path / "blobs"))
        link_id = driver.connect(writer.public, lambda _message: None)
        await driver.receive(link_id, HELLO, 10)
        message = Entries(ConversationId(genesis.id), (genesis,))
        await driver.receive(link_id, message, 900)
        second = asyncio.create_task(driver.receive(link_id, message, 900))
        # Counted behind the core, in the step in which it waits for the disk or ends.
        await until(lambda: driver.counters.bytes_in == 10 + 900 + 900)
        assert not second.done()
        await driver.start()
        await second
        await driver.stop()


# --- invalid requests and bugs ---------------------------------------------------------


async def test_a_cursor_on_no_track_is_refused(served: ServedHub):
    for track in (300, -1, 4):
        head = sync_pb2.LaneHead(author=served.writer.public, epoch=1, track=track, id=bytes(32))
        request = sync_pb2.WatchRequest(conversation=served.id, cursor=[head])
        call = served.owner.sync.Watch(request, metadata=served.owner.metadata)
        assert await refused(call) == "ARGUMENT_INVALID"


async def test_a_bug_of_the_hub_is_reported_without_its_text(
    served: ServedHub, monkeypatch: pytest.MonkeyPatch
):
    async def fail(*_args: object) -> None:
        raise RuntimeError("what another member wrote")

    monkeypatch.setattr(served.hub.driver, "receive", fail)
    monkeypatch.setattr(served.hub.driver._loader, "ensure_loaded", fail)
    sync, metadata = served.owner.sync, served.owner.metadata
    calls = (
        sync.Resolve(sync_pb2.ResolveRequest(conversation=served.id), metadata=metadata),
        sync.Fetch(sync_pb2.FetchRequest(conversation=served.id), metadata=metadata).read(),
        sync.Watch(sync_pb2.WatchRequest(conversation=served.id), metadata=metadata).read(),
        served.owner.blobs.Write(
            iter([blob_pb2.WriteRequest(conversation=served.id)]), metadata=metadata
        ),
    )
    for call in calls:
        with pytest.raises(Exception, match="its log says more") as raised:
            await call
        assert "member" not in str(raised.value)
    link = served.owner.link()
    await link.send(HELLO)
    close = await link.read()
    assert isinstance(close, Close)
    assert close.fault is not None
    assert (close.fault.reason, "member" in close.fault.detail) == ("INTERNAL", False)


async def test_a_watch_of_a_deleted_conversation_ends_with_that_reason(served: ServedHub):
    call = await unread_watch(served)
    assert await call.read()
    await served.owner.calls.delete(served.id)
    assert await refused(call) == "CONVERSATION_DELETED"


async def test_requests_of_a_stranger_cause_no_disk_reads(
    served: ServedHub, monkeypatch: pytest.MonkeyPatch
):
    async def fail(*_args: object) -> Any:
        raise StoreError("a stranger could measure how long this takes")

    monkeypatch.setattr(served.hub.driver.store, "_rows", fail)
    sync, metadata = served.stranger.sync, served.stranger.metadata
    for conversation in (served.id, NOWHERE):
        request = sync_pb2.ResolveRequest(conversation=conversation, id=bytes(32))
        assert await refused(sync.Resolve(request, metadata=metadata)) == "CONVERSATION_NOT_FOUND"


# --- tickets and fates ---------------------------------------------------------------------


async def test_an_expired_ticket_is_replaced_by_the_calls_themselves(served: ServedHub):
    calls = served.owner.calls
    ids = [e.id for e in served.entries]
    calls._ticket = b"expired"
    assert {e.id for e in await calls.fetch(served.id, ids)} == set(ids)
    calls._ticket = b"expired"
    heads = served.hub.driver.hub.shelf[served.id].log.heads()[:0]
    watch = calls.watch(served.id, heads)
    assert served.genesis in await anext(aiter(watch))


async def test_resolve_names_all_entries_a_pending_entry_waits_for(served: ServedHub):
    other = Writer(2)
    lost = other.write(served.id, said("never sent"), parents=[served.genesis])
    cut = Cut(other.epoch, Track.CONVERSATION, 0, lost.id)
    revoked = served.writer.write(
        served.id, Member(Revocation(other.public, (cut,))), parents=[served.genesis], listed=[lost]
    )
    after = served.writer.write(served.id, Member(Revocation(Writer(3).public)), parents=[revoked])
    link = served.owner.link()
    await link.send(HELLO, Entries(served.id, (revoked, after)))
    assert isinstance(await link.read(), Welcome)
    await link.read()  # the Fault: both are pending
    for entry in (revoked, after):
        found = await served.owner.calls.resolve(served.id, entry.id)
        assert found.fate == sync_pb2.FATE_PENDING
        assert list(found.missing) == [lost.id]


# --- deletion ----------------------------------------------------------------------------


async def test_a_deletion_that_was_cut_short_is_finished_by_the_next_start(
    served: ServedHub, tmp_path: Path
):
    data = b"a picture"
    digest = hashlib.sha256(data).digest()
    write = blob_pb2.WriteRequest(
        conversation=served.id, digest=digest, size_bytes=len(data), data=data
    )
    await served.owner.blobs.Write(iter([write]), metadata=served.owner.metadata)
    await served.hub.stop()
    async with await Store.open(tmp_path / "hub" / "log" / "log.db") as store:
        await store.put_meta("deleted conversations", served.id)  # and then the power went
    again = await start(HubConfig(data_dir=tmp_path / "hub", listen="127.0.0.1:0"))
    try:
        assert again.driver.hub.shelf == {}
        assert not await again.driver.store.has(served.id)
        assert not (tmp_path / "hub" / "blobs" / served.id.hex()).exists()
    finally:
        await again.stop()


async def test_a_writing_member_does_not_restore_a_deleted_conversation(served: ServedHub):
    deleting = asyncio.create_task(served.owner.calls.delete(served.id))
    loader, peer = served.hub.driver._loader, served.writer.public
    while not deleting.done():
        await asyncio.gather(*(loader.ensure_loaded(peer, served.id) for _ in range(5)))
    await deleting
    await loader.ensure_loaded(peer, served.id)
    assert served.id not in served.hub.driver.hub.shelf
    assert not await served.hub.driver.store.has(served.id)
    for caller in (served.owner, served.stranger):
        request = sync_pb2.ResolveRequest(conversation=served.id, id=bytes(32))
        call = caller.sync.Resolve(request, metadata=caller.metadata)
        assert await refused(call) == "CONVERSATION_DELETED"


async def test_an_upload_does_not_outlive_its_conversation(served: ServedHub, tmp_path: Path):
    begun = asyncio.Event()

    async def pieces() -> AsyncIterator[blob_pb2.WriteRequest]:
        yield blob_pb2.WriteRequest(
            conversation=served.id, digest=bytes(32), size_bytes=100, data=b"x"
        )
        await begun.wait()
        yield blob_pb2.WriteRequest(data=b"y")

    folder = tmp_path / "hub" / "blobs" / served.id.hex()
    upload = served.owner.blobs.Write(pieces(), metadata=served.owner.metadata)
    await until(folder.exists)
    await served.owner.calls.delete(served.id)
    begun.set()
    assert await refused(upload) == "CONVERSATION_DELETED"
    assert not folder.exists()
