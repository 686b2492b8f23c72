"""A full disk, at the hub and at a replica: reported with a next step, and nothing is lost."""

import hashlib
import random
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from antiphon.v1 import blob_pb2, sync_pb2
from replica.errors import StoreError
from replica.ids import ConversationId, EntryId
from replica.io.driver.replica import Replica
from replica.link.events import EntryFailed, Event
from replica.log.body import Genesis, Grant, Member, Role
from replica.log.entry import Entry
from replica.refusals import StoreFull
from syncd.bounds.disk_quota import stored_bytes
from syncd.io.config import HubConfig
from syncd.io.server import HubServer, start
from tests.support.callers import PATIENCE_S, ServedHub, serve_hub
from tests.support.files import file_size_limit, full_disk
from tests.support.hub_views import refusal, stored
from tests.support.talk import key_of
from tests.support.writers import Writer, said

LONG = said("x" * 100_000)


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[HubServer]:
    hub = await start(HubConfig(data_dir=tmp_path / "hub", listen="127.0.0.1:0"))
    yield hub
    await hub.stop()


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[ServedHub]:
    async with serve_hub(tmp_path) as built:
        yield built


class Talker:
    """A replica with its failures and one chain of messages."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.failures: list[EntryFailed] = []
        replica.listen(self._receive)

    def _receive(self, event: Event) -> None:
        if isinstance(event, EntryFailed):
            self.failures.append(event)

    async def begin(self) -> "Talker":
        self.id = await self.replica.create(Genesis((self.replica.public,)))
        self.last = EntryId(self.id)
        return self

    async def append(self, *bodies: Any) -> list[Entry]:
        entries = []
        for body in bodies:
            entries.append(await self.replica.append(self.id, body, parents=(self.last,)))
            self.last = entries[-1].id
        return entries

    async def grant(self, reader: "Talker") -> None:
        body = Member(Grant(reader.public, Role.READER))
        await self.replica.append(self.id, body, parents=(EntryId(self.id),))

    async def stored(self) -> set[EntryId]:
        return {entry.id for entry in (await self.replica.store.load(self.id)).entries}


async def at(hub: HubServer, conversation: ConversationId) -> set[EntryId]:
    """Return the ids of the entries the hub has on disk."""
    return {entry.id for entry in (await hub.driver.store.load(conversation)).entries}


# --- the hub's disk -----------------------------------------------------------------


async def test_a_full_hub_refuses_and_gets_everything_once_space_is_freed(
    hub: HubServer, tmp_path: Path
):
    async with (
        Replica.open(tmp_path / "me.db", key_of(1), hub.address) as mine,
        Replica.open(tmp_path / "you.db", key_of(2), hub.address, follow=True) as yours,
    ):
        me = await Talker(mine).begin()
        await me.grant(yours)
        assert await mine.wait_synced(me.id)
        assert await yours.wait_for(lambda: me.id in yours.shelf, PATIENCE_S)
        before = await at(hub, me.id)
        async with full_disk(hub.driver.store):
            long, short = await me.append(LONG, said("short"))
            assert await mine.wait_for(lambda: bool(me.failures), PATIENCE_S)
            fault = me.failures[0].fault
            assert (fault.reason, fault.next_step) == (StoreFull.reason, StoreFull.next_step)
            assert fault.retryable
            assert await at(hub, me.id) == before
            # Other clients get no entry that the hub does not hold.
            assert long.id not in yours.shelf[me.id].log.entries
        assert await mine.wait_synced(me.id)
        assert await at(hub, me.id) == before | {long.id, short.id}
        assert await yours.wait_for(lambda: short.id in yours.shelf[me.id].log.entries, PATIENCE_S)


async def test_a_full_hub_refuses_push_and_ends_watch_with_the_reason(served: ServedHub):
    watch = served.owner.sync.Watch(
        sync_pb2.WatchRequest(conversation=served.id), metadata=served.owner.metadata
    )
    await watch.read()
    entry = served.writer.write(served.id, LONG, parents=[served.entries[-1]])
    before = await stored(served)
    async with full_disk(served.hub.driver.store):
        with pytest.raises(StoreFull) as caught:
            await served.owner.calls.push(served.id, (entry,))
        assert caught.value.retryable
        assert await refusal(watch) == (StoreFull.reason, StoreFull.next_step)
        # Stored entries are served nevertheless.
        assert await stored(served) == before
        assert await served.owner.calls.fetch(served.id, [before[-1].id]) == [before[-1]]
    assert await served.owner.calls.push(served.id, (entry,)) == {entry.id: None}
    assert await stored(served) == [*before, entry]


async def test_what_a_full_disk_refused_counts_for_nobody(served: ServedHub):
    """A client sends it again and again: its quotas are not for that."""
    hub, key = served.hub.driver.hub, served.writer.public
    other = Writer(1, epoch=2)
    genesis = other.genesis()
    conversation = ConversationId(genesis.id)
    begun = (genesis, other.write(conversation, LONG, parents=[genesis]))
    more = served.writer.write(served.id, LONG, parents=[served.entries[-1]])
    used, brought = hub.disk.total, hub.bringers.brought(key)
    async with full_disk(served.hub.driver.store):
        for _ in range(3):
            for refused in (begun, (more,)):
                with pytest.raises(StoreFull):
                    await served.owner.calls.push(refused[0].conversation, refused)
            assert (hub.disk.total, hub.bringers.brought(key)) == (used, brought)
    assert not any((await served.owner.calls.push(conversation, begun)).values())
    assert hub.disk.total == used + stored_bytes(begun)
    assert hub.bringers.brought(key) == brought + 1


async def test_deleting_a_conversation_frees_space_at_a_full_hub(served: ServedHub):
    big = served.writer.write(served.id, LONG, parents=[served.entries[-1]])
    assert await served.owner.calls.push(served.id, (big,)) == {big.id: None}
    async with full_disk(served.hub.driver.store):
        assert await served.owner.calls.delete(served.id) == 5
        other = Writer(7)
        genesis = other.genesis([other.public, served.writer.public])
        long = other.write(genesis.conversation, LONG, parents=[genesis])
        outcome = await served.owner.calls.push(genesis.conversation, (genesis, long))
        assert outcome == {genesis.id: None, long.id: None}


async def test_an_upload_that_found_a_full_disk_resumes_at_its_offset(served: ServedHub):
    data = random.Random(1).randbytes(1_200_000)
    digest = hashlib.sha256(data).digest()
    blobs, metadata = served.owner.blobs, served.owner.metadata

    def write(start: int, stop: int) -> Any:
        request = blob_pb2.WriteRequest(
            conversation=served.id, digest=digest, size_bytes=len(data), offset=start,
            data=data[start:stop],
        )  # fmt: skip
        return blobs.Write(iter([request]), metadata=metadata)

    assert (await write(0, 400_000)).committed_bytes == 400_000
    with file_size_limit(700_000):
        # To the kernel this is a file too large, on a disk with free space.
        assert await refusal(write(400_000, 1_200_000)) == (StoreError.reason, StoreError.next_step)
        await served.say("the log goes on")
    stat = blob_pb2.StatRequest(conversation=served.id, digest=digest)
    held = (await blobs.Stat(stat, metadata=metadata)).committed_bytes
    assert held == 700_000
    assert (await write(held, len(data))).complete
    read = blob_pb2.ReadRequest(conversation=served.id, digest=digest)
    got = [response.data async for response in blobs.Read(read, metadata=metadata)]
    assert b"".join(got) == data


# --- a replica's disk ---------------------------------------------------------------


@pytest.mark.parametrize("is_linked", [True, False], ids=["linked", "offline"])
async def test_a_full_replica_refuses_the_append_and_loses_nothing_before_it(
    hub: HubServer, tmp_path: Path, is_linked: bool
):
    async with Replica.open(tmp_path / "me.db", key_of(1), hub.address) as replica:
        me = await Talker(replica).begin()
        await me.append(said("one"))
        assert await replica.wait_synced(me.id)
        if not is_linked:
            await hub.stop()
            assert await replica.wait_for(lambda: not replica.hub.is_linked, PATIENCE_S)
        (two,) = await me.append(said("two"))
        before = await me.stored()
        async with full_disk(replica.store):
            with pytest.raises(StoreFull) as caught:
                await me.append(LONG)
            assert caught.value.next_step == StoreFull.next_step
            assert await me.stored() == before
        if not is_linked:
            hub = await start(HubConfig(data_dir=tmp_path / "hub", listen=hub.address))
        assert await replica.wait_synced(me.id)
        (long,) = await me.append(LONG)
        assert long.header.parents == (two.id,)
        assert await replica.wait_synced(me.id)
        everything = before | {long.id}
        assert await me.stored() == await at(hub, me.id) == everything
        log = replica.shelf[me.id].log
        assert log.entries.keys() == everything
        assert log.equivocations() == []
    await hub.stop()


async def test_a_full_replica_asks_again_for_entries_it_could_not_store(
    hub: HubServer, tmp_path: Path
):
    async with (
        Replica.open(tmp_path / "me.db", key_of(1), hub.address) as mine,
        Replica.open(tmp_path / "you.db", key_of(2), hub.address, follow=True) as yours,
    ):
        me, you = await Talker(mine).begin(), Talker(yours)
        await me.grant(yours)
        assert await yours.wait_for(lambda: me.id in yours.shelf, PATIENCE_S)
        assert await yours.wait_synced(me.id)
        async with full_disk(yours.store):
            (long,) = await me.append(LONG)
            assert await yours.wait_for(lambda: bool(you.failures), PATIENCE_S)
            assert you.failures[0].fault.reason == StoreFull.reason
        assert await yours.wait_for(
            lambda: me.id in yours.shelf and long.id in yours.shelf[me.id].log.entries, PATIENCE_S
        )
        assert {e.id for e in (await yours.store.load(me.id)).entries} == await at(hub, me.id)


def test_a_hub_whose_log_can_not_be_written_keeps_serving(tmp_path: Path):
    command = [sys.executable, "-m", "syncd", "--listen", "127.0.0.1:0"]
    with (
        Path("/dev/full").open("wb") as full,
        subprocess.Popen(
            [*command, "--data-dir", str(tmp_path)],
            stdout=subprocess.PIPE,
            stderr=full,
            text=True,
        ) as hub,
    ):
        assert hub.stdout is not None
        assert hub.stdout.readline().startswith("hub 127.0.0.1:")
        hub.terminate()
        assert hub.wait(30) == 0
