"""Peers that stall, ask for nonsense or are revoked, over a real hub on loopback."""

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
from replica.io.blobs import Blobs
from replica.io.store import Store
from replica.link.messages import Close, Entries, Hello, Open, Welcome
from replica.log.body import Cut, Member, Revocation
from syncd.hub import Hub
from syncd.io import driver as driver_module
from syncd.io import outbox as outbox_module
from syncd.io.config import HubConfig
from syncd.io.driver import HubDriver
from syncd.io.server import start
from syncd.policy import Policy
from tests.support.callers import CallersTown, refused, town_in, until
from tests.support.writers import Writer, said

HELLO = Hello((1,))
NOWHERE = ConversationId(b"\5" * 32)


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[CallersTown]:
    async with town_in(tmp_path, links_per_key_max=1) as built:
        for _ in range(4):
            await built.say("x" * 400_000)  # more than gRPC takes ahead of a reader
        yield built


def links(town: CallersTown) -> int:
    return len(town.hub.driver.hub.links)


async def unread_link(town: CallersTown) -> Any:
    link = town.owner.link()
    await link.send(HELLO, Open(town.id, bytes(32), ()))
    return link.call


async def unread_watch(town: CallersTown) -> Any:
    request = sync_pb2.WatchRequest(conversation=town.id)
    return town.owner.sync.Watch(request, metadata=town.owner.metadata)


# --- peers that do not read ----------------------------------------------------------


@pytest.mark.parametrize("unread", [unread_link, unread_watch])
async def test_who_reads_nothing_is_let_go_of_and_told_once_it_reads(
    town: CallersTown,
    monkeypatch: pytest.MonkeyPatch,
    unread: Callable[[CallersTown], Awaitable[Any]],
):
    monkeypatch.setattr(limits, "WRITE_TIMEOUT_S", 0.05)
    call = await unread(town)
    await until(lambda: links(town) == 1)
    await until(lambda: links(town) == 0)
    assert await refused(town.owner.link().call) == "QUOTA_EXCEEDED"
    assert await refused(call) == "SLOW_READER"


async def test_what_waits_for_one_stream_is_bounded_in_bytes(
    town: CallersTown, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "OUTBOX_BYTES_MAX", 500_000)
    assert await refused(await unread_link(town)) == "SLOW_READER"
    assert links(town) == 0


async def test_who_does_not_read_is_not_read(town: CallersTown, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(outbox_module, "ROOMY_BYTES", 300_000)
    link = town.owner.link()
    await link.send(HELLO, Open(town.id, bytes(32), ()))
    hub = town.hub.driver.hub
    await until(lambda: any(link.exchange.channels for link in hub.links.values()))
    await town.hub.driver.performer.flush()
    entry = town.writer.write(town.id, said("later"), parents=[town.entries[-1]])
    await link.send(Entries(town.id, (entry,)))
    for _ in range(3):
        found = await town.owner.calls.resolve(town.id, entry.id)
        assert found.fate == sync_pb2.FATE_UNKNOWN
    log = hub.shelf[town.id].log
    while entry.id not in log.entries:
        assert await link.read() is not None


async def test_a_link_is_read_no_faster_than_the_disk_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(driver_module, "BACKLOG_BYTES_MAX", 1000)
    writer = Writer(1)
    genesis = writer.genesis()
    async with await Store.open(tmp_path / "log.db") as store:
        driver = HubDriver(Hub(writer.public, Policy()), store, Blobs(tmp_path / "blobs"))
        link_id = driver.connect(writer.public, lambda _message: None)
        await driver.receive(link_id, HELLO, 10)
        message = Entries(ConversationId(genesis.id), (genesis,))
        await driver.receive(link_id, message, 900)
        second = asyncio.create_task(driver.receive(link_id, message, 900))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not second.done()
        await driver.start()
        await second
        await driver.stop()


# --- nonsense and bugs -----------------------------------------------------------------


async def test_a_cursor_on_no_track_is_refused(town: CallersTown):
    for track in (300, -1, 4):
        head = sync_pb2.LaneHead(author=town.writer.public, epoch=1, track=track, id=bytes(32))
        request = sync_pb2.WatchRequest(conversation=town.id, cursor=[head])
        call = town.owner.sync.Watch(request, metadata=town.owner.metadata)
        assert await refused(call) == "ARGUMENT_INVALID"


async def test_a_bug_of_the_hub_is_told_without_its_story(
    town: CallersTown, monkeypatch: pytest.MonkeyPatch
):
    async def fail(*_args: object) -> None:
        raise RuntimeError("what another member wrote")

    monkeypatch.setattr(town.hub.driver, "receive", fail)
    monkeypatch.setattr(town.hub.driver, "ensure_loaded", fail)
    sync, metadata = town.owner.sync, town.owner.metadata
    calls = (
        sync.Resolve(sync_pb2.ResolveRequest(conversation=town.id), metadata=metadata),
        sync.Fetch(sync_pb2.FetchRequest(conversation=town.id), metadata=metadata).read(),
        sync.Watch(sync_pb2.WatchRequest(conversation=town.id), metadata=metadata).read(),
        town.owner.blobs.Write(
            iter([blob_pb2.WriteRequest(conversation=town.id)]), metadata=metadata
        ),
    )
    for call in calls:
        with pytest.raises(Exception, match="its log says more") as raised:
            await call
        assert "member" not in str(raised.value)
    link = town.owner.link()
    await link.send(HELLO)
    close = await link.read()
    assert isinstance(close, Close)
    assert close.fault is not None
    assert (close.fault.reason, "member" in close.fault.detail) == ("INTERNAL", False)


async def test_a_watcher_of_a_deleted_conversation_is_told_so(town: CallersTown):
    call = await unread_watch(town)
    assert await call.read()
    await town.owner.calls.delete(town.id)
    assert await refused(call) == "CONVERSATION_DELETED"


async def test_what_a_stranger_asks_for_is_not_looked_up_on_the_disk(
    town: CallersTown, monkeypatch: pytest.MonkeyPatch
):
    async def fail(*_args: object) -> Any:
        raise StoreError("a stranger could measure how long this takes")

    monkeypatch.setattr(town.hub.driver.store, "_rows", fail)
    sync, metadata = town.stranger.sync, town.stranger.metadata
    for conversation in (town.id, NOWHERE):
        request = sync_pb2.ResolveRequest(conversation=conversation, id=bytes(32))
        assert await refused(sync.Resolve(request, metadata=metadata)) == "CONVERSATION_NOT_FOUND"


# --- tickets and fates ---------------------------------------------------------------------


async def test_an_expired_ticket_is_replaced_by_the_calls_themselves(town: CallersTown):
    calls = town.owner.calls
    ids = [e.id for e in town.entries]
    calls._ticket = b"expired"
    assert {e.id for e in await calls.fetch(town.id, ids)} == set(ids)
    calls._ticket = b"expired"
    heads = town.hub.driver.hub.shelf[town.id].log.heads()[:0]
    watch = calls.watch(town.id, heads)
    assert town.genesis in await anext(aiter(watch))


async def test_resolve_names_all_a_waiting_entry_waits_for(town: CallersTown):
    other = Writer(2)
    lost = other.write(town.id, said("never sent"), parents=[town.genesis])
    cut = Cut(other.epoch, Track.CONVERSATION, 0, lost.id)
    revoked = town.writer.write(
        town.id, Member(Revocation(other.public, (cut,))), parents=[town.genesis], listed=[lost]
    )
    after = town.writer.write(town.id, Member(Revocation(Writer(3).public)), parents=[revoked])
    link = town.owner.link()
    await link.send(HELLO, Entries(town.id, (revoked, after)))
    assert isinstance(await link.read(), Welcome)
    await link.read()  # the Fault: both wait
    for entry in (revoked, after):
        found = await town.owner.calls.resolve(town.id, entry.id)
        assert found.fate == sync_pb2.FATE_PENDING
        assert list(found.missing) == [lost.id]


# --- deletion ----------------------------------------------------------------------------


async def test_a_deletion_that_was_cut_short_is_finished_by_the_next_start(
    town: CallersTown, tmp_path: Path
):
    data = b"a picture"
    digest = hashlib.sha256(data).digest()
    write = blob_pb2.WriteRequest(
        conversation=town.id, digest=digest, size_bytes=len(data), data=data
    )
    await town.owner.blobs.Write(iter([write]), metadata=town.owner.metadata)
    await town.hub.stop()
    async with await Store.open(tmp_path / "hub" / "log" / "log.db") as store:
        await store.put_meta("deleted conversations", town.id)  # and then the power went
    again = await start(HubConfig(data_dir=tmp_path / "hub", listen="127.0.0.1:0"))
    try:
        assert again.driver.hub.shelf == {}
        assert not await again.driver.store.has(town.id)
        assert not (tmp_path / "hub" / "blobs" / town.id.hex()).exists()
    finally:
        await again.stop()


async def test_no_busy_member_brings_a_deleted_conversation_back(town: CallersTown):
    deleting = asyncio.create_task(town.owner.calls.delete(town.id))
    while not deleting.done():
        driver = town.hub.driver
        await asyncio.gather(*(driver.ensure_loaded(town.id) for _ in range(5)))
    await deleting
    await town.hub.driver.ensure_loaded(town.id)
    assert town.id not in town.hub.driver.hub.shelf
    assert not await town.hub.driver.store.has(town.id)
    for caller in (town.owner, town.stranger):
        request = sync_pb2.ResolveRequest(conversation=town.id, id=bytes(32))
        call = caller.sync.Resolve(request, metadata=caller.metadata)
        assert await refused(call) == "CONVERSATION_DELETED"


async def test_an_upload_does_not_outlive_its_conversation(town: CallersTown, tmp_path: Path):
    begun = asyncio.Event()

    async def pieces() -> AsyncIterator[blob_pb2.WriteRequest]:
        yield blob_pb2.WriteRequest(
            conversation=town.id, digest=bytes(32), size_bytes=100, data=b"x"
        )
        await begun.wait()
        yield blob_pb2.WriteRequest(data=b"y")

    folder = tmp_path / "hub" / "blobs" / town.id.hex()
    upload = town.owner.blobs.Write(pieces(), metadata=town.owner.metadata)
    await until(folder.exists)
    await town.owner.calls.delete(town.id)
    begun.set()
    assert await refused(upload) == "BLOB_OFFSET_INVALID"
    assert not folder.exists()
