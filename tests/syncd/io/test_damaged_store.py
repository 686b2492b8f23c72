"""Damaged rows on the disk of a hub and of a replica: real SQLite, real links, nothing lost."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from antiphon.v1 import blob_pb2, sync_pb2
from replica import limits
from replica.conversation.conversation import Conversation
from replica.conversation.entry_store import Loaded
from replica.conversation.next_seal import sealable
from replica.core import pauses
from replica.ids import ConversationId, EntryId
from replica.io.driver.replica import Replica
from replica.io.store.store import Store
from replica.link.events import EntryFailed, Event
from replica.log.body import Grant, Member, Request, Revocation, Role, Sampling
from replica.log.damage import NOTHING_LOST
from replica.log.entry import Entry
from replica.log.kinds import CONTROL_KINDS
from replica.refusals import ConversationDamaged, StoreCorrupt
from syncd.io.config import HubConfig
from syncd.io.server import HubServer, start
from tests.support.callers import PATIENCE_S, Caller, refused
from tests.support.files import break_page, flip_byte, query
from tests.support.stories import answer, cut_at, seal_of
from tests.support.writers import Writer, said

NOT_FOUND = "CONVERSATION_NOT_FOUND"
CONTROL = ["genesis", "grant", "revocation", "request", "seal"]
CLOSING = ["genesis", "grant", "revocation", "message"]
"""The revocation's cut names the message: without that it can't be admitted."""


class Written:
    """A conversation with every control kind, and another one of the same owner."""

    def __init__(self) -> None:
        self.owner, self.host, self.eve = Writer(1), Writer(2), Writer(3)
        self.genesis = self.owner.genesis()
        self.id = ConversationId(self.genesis.id)
        self.held = Conversation(self.id)
        self.held.admit(self.genesis)
        self.host_in = self._grant(self.host, Role.HOST, self.genesis)
        self.grant = self._grant(self.eve, Role.WRITER, self.host_in)
        self.message = self.write(self.eve, said("hello"), self.genesis)
        request = Request(self.host.public, Sampling())
        self.request = self.write(self.owner, request, self.message)
        self.seal = self._seal()
        self.answer = self.write(self.host, answer(), self.seal, basis=self.seal)
        out = Member(Revocation(self.eve.public, (cut_at(self.message),)))
        self.revocation = self.write(self.owner, out, self.grant, listed=[self.message])
        self.last = self.write(self.owner, said("last"), self.answer, basis=self.seal)
        self.all = sorted(self.held.log.entries.values(), key=lambda e: e.order_key)
        self.other = Writer(5).genesis([Writer(5).public, self.owner.public])

    def write(self, writer: Writer, body, *parents: Entry, **more) -> Entry:
        entry = writer.write(self.id, body, parents=parents, **more)
        self.held.admit(entry)
        assert entry.id in self.held.log.entries
        return entry

    def _grant(self, writer: Writer, role: Role, parent: Entry) -> Entry:
        return self.write(self.owner, Member(Grant(writer.public, role)), parent)

    def _seal(self) -> Entry:
        ready = sealable(self.held, self.request.id)
        assert ready is not None
        body = seal_of(self.held, self.request.id, ready.entries, None)
        ids = (*ready.entries, *ready.membership_heads)
        listed = [self.held.log.entries[i] for i in ids]
        return self.write(self.host, body, self.request, listed=listed)


class Disk:
    """Stores in a folder, filled and damaged while no process holds them."""

    def __init__(self, folder: Path) -> None:
        self.hub = folder / "hub" / "log" / "log.db"
        self.replica = folder / "replica" / "log.db"
        self.folder = folder

    async def fill(self, path: Path, entries: Iterable[Entry]) -> None:
        async with await Store.open(path) as store:
            await store.append(list(entries))

    async def damage(self, path: Path, entry: Entry) -> None:
        """Flip a bit of a control entry's body, of another entry's header."""
        is_control = entry.header.kind in CONTROL_KINDS
        part = entry.body if is_control and entry.body else entry.header_bytes
        await asyncio.to_thread(flip_byte, path, part)

    @asynccontextmanager
    async def running_hub(self) -> AsyncIterator[HubServer]:
        hub = await start(HubConfig(data_dir=self.folder / "hub", listen="127.0.0.1:0"))
        try:
            yield hub
        finally:
            await hub.stop()


@pytest.fixture
def written() -> Written:
    return Written()


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


async def calling(hub: HubServer, store: Store, writer: Writer) -> Caller:
    return await Caller(hub.address, store, writer.key).enter()


async def reasons_of_all_calls(caller: Caller, written: Written, *pushed: Entry) -> set[str]:
    """Return the reasons every call about the conversation is refused with."""
    outcomes = await caller.calls.push(written.id, pushed)
    reasons = {fault.reason if fault else "durable" for fault in outcomes.values()}
    about, digest = {"conversation": written.id}, bytes(32)
    sync, blobs, ticket = caller.sync, caller.blobs, {"metadata": caller.metadata}
    calls = (
        sync.Fetch(sync_pb2.FetchRequest(ids=[written.message.id], **about), **ticket),
        sync.Resolve(sync_pb2.ResolveRequest(id=written.message.id, **about), **ticket),
        sync.Watch(sync_pb2.WatchRequest(**about), **ticket),
        sync.Delete(sync_pb2.DeleteRequest(**about), **ticket),
        blobs.Stat(blob_pb2.StatRequest(digest=digest, **about), **ticket),
        blobs.Read(blob_pb2.ReadRequest(digest=digest, **about), **ticket),
        blobs.Write(iter([blob_pb2.WriteRequest(digest=digest, **about)]), **ticket),
    )
    return reasons | {await refused(call) for call in calls}


# --- the hub's disk -----------------------------------------------------------------------


@pytest.mark.parametrize("name", [*CONTROL, "message", "last"])
async def test_a_damaged_hub_starts_and_is_repaired_by_a_member(
    disk: Disk, written: Written, name: str
) -> None:
    await disk.fill(disk.hub, [*written.all, written.other])
    await disk.fill(disk.replica, [*written.all, written.other])
    await disk.damage(disk.hub, getattr(written, name))
    other = ConversationId(written.other.id)
    async with disk.running_hub() as hub:
        served = hub.driver.hub.shelf
        assert served[written.id].is_blocked is (name in CLOSING)
        async with Replica.open(disk.replica, written.owner.key, hub.address) as replica:
            await replica.follow(other)
            assert await replica.wait_synced(other)
            await replica.follow(written.id)
            assert await replica.wait_synced(written.id)
        assert served[written.id].log.digest == written.held.log.digest
        assert not served[written.id].damage
        assert not served[written.id].log.pending
        assert await hub.driver.store.load(written.id) == Loaded(written.all, NOTHING_LOST)
    count = "SELECT count(*) FROM entries WHERE conversation = ?"
    assert query(disk.hub, count, written.id) == [(len(written.all),)]
    async with disk.running_hub() as hub:
        assert not hub.driver.hub.shelf[written.id].damage


@pytest.mark.parametrize("name", CLOSING)
async def test_a_hub_that_lost_membership_entries_refuses_all_callers(
    disk: Disk, written: Written, name: str
) -> None:
    await disk.fill(disk.hub, written.all)
    await disk.damage(disk.hub, getattr(written, name))
    async with disk.running_hub() as hub, await Store.open(disk.folder / "pins.db") as pins:
        for writer in (written.owner, written.eve, Writer(9)):
            caller = await calling(hub, pins, writer)
            reasons = await reasons_of_all_calls(caller, written, written.last)
            assert reasons == {NOT_FOUND}
            await caller.calls.close()
        assert hub.driver.hub.shelf[written.id].is_blocked


async def test_a_lost_revocation_readmits_no_key(
    disk: Disk, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RESYNC_S", 0.05)
    await disk.fill(disk.hub, written.all)
    await disk.damage(disk.hub, written.revocation)
    mine = [e for e in written.all if e not in (written.revocation, written.last)]
    await disk.fill(disk.replica, mine)
    eve = written.eve.write(written.id, said("back again"), parents=[written.message])
    async with disk.running_hub() as hub, await Store.open(disk.folder / "pins.db") as pins:
        failures: list[EntryFailed] = []

        def receive(event: Event) -> None:
            if isinstance(event, EntryFailed):
                failures.append(event)

        async with Replica.open(disk.replica, written.eve.key, hub.address, follow=True) as replica:
            replica.listen(receive)
            await replica.follow(written.id)
            assert await replica.wait_for(lambda: bool(failures), PATIENCE_S)
            assert failures[0].fault.reason == NOT_FOUND
            assert replica.shelf[written.id].log.entries.keys() == {e.id for e in mine}
        caller = await calling(hub, pins, written.eve)
        # Her whole log but the revocation, which would make her a member of a new conversation.
        assert await reasons_of_all_calls(caller, written, *mine, eve) == {NOT_FOUND}
        owner = await calling(hub, pins, written.owner)
        healing = await owner.calls.push(written.id, (written.revocation,))
        assert healing == {written.revocation.id: None}
        assert not hub.driver.hub.shelf[written.id].is_blocked
        assert await reasons_of_all_calls(caller, written, eve) == {NOT_FOUND}
        held = await owner.calls.fetch(written.id, [e.id for e in (*written.all, eve)])
        assert {e.id for e in held} == {e.id for e in written.all}
        await caller.calls.close()
        await owner.calls.close()


async def test_an_unreadable_conversation_does_not_affect_the_others_served(
    disk: Disk, written: Written
) -> None:
    long = written.write(written.owner, said("x" * 30_000), written.last)
    await disk.fill(disk.hub, [*written.all, long, written.other])
    assert long.body is not None
    await asyncio.to_thread(break_page, disk.hub, b"x" * 4_000)
    async with disk.running_hub() as hub, await Store.open(disk.folder / "pins.db") as pins:
        caller = await calling(hub, pins, written.owner)
        other = ConversationId(written.other.id)
        assert await caller.calls.fetch(other, [written.other.id]) == [written.other]
        # It can't begin anew either, which would lose revocations.
        assert await reasons_of_all_calls(caller, written, *written.all) == {NOT_FOUND}
        await caller.calls.close()


# --- a replica's disk -----------------------------------------------------------------------


@pytest.mark.parametrize("follow", [False, True], ids=["asks", "is listed"])
@pytest.mark.parametrize("name", [*CONTROL, "message", "last"])
async def test_a_damaged_replica_is_repaired_by_its_hub(
    disk: Disk, written: Written, name: str, follow: bool
) -> None:
    await disk.fill(disk.hub, [*written.all, written.other])
    await disk.fill(disk.replica, [*written.all, written.other])
    await disk.damage(disk.replica, getattr(written, name))
    parents = (written.genesis.id,)
    async with Replica.open(disk.replica, written.owner.key) as replica:
        held = await replica.load(written.id)
        assert held.is_blocked is (name in CLOSING)
        if held.is_blocked:
            with pytest.raises(ConversationDamaged):
                await replica.append(written.id, said("x"), parents=parents)
    async with (
        disk.running_hub() as hub,
        Replica.open(disk.replica, written.owner.key, hub.address, follow=follow) as replica,
    ):
        if follow:
            assert await replica.wait_for(lambda: written.id in replica.shelf, PATIENCE_S)
        else:
            await replica.follow(written.id)
        assert await replica.wait_synced(written.id)
        held = replica.shelf[written.id]
        assert held.log.digest == written.held.log.digest
        assert not held.damage
        assert await replica.store.load(written.id) == Loaded(written.all, NOTHING_LOST)
        await replica.append(written.id, said("x"), parents=parents)
        assert await replica.wait_synced(written.id)


async def test_an_unreadable_conversation_does_not_affect_the_sync_of_others(
    disk: Disk, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pauses, "REOPEN_FIRST_S", 0.01)
    long = written.write(written.owner, said("x" * 30_000), written.last)
    await disk.fill(disk.hub, [*written.all, long, written.other])
    await disk.fill(disk.replica, [*written.all, long, written.other])
    await asyncio.to_thread(break_page, disk.replica, b"x" * 4_000)
    failures: list[EntryFailed] = []

    def receive(event: Event) -> None:
        if isinstance(event, EntryFailed):
            failures.append(event)

    async with (
        disk.running_hub() as hub,
        Replica.open(disk.replica, written.owner.key, hub.address, follow=True) as replica,
    ):
        replica.listen(receive)
        other = ConversationId(written.other.id)
        assert await replica.wait_for(lambda: other in replica.shelf, PATIENCE_S)
        assert await replica.wait_synced(other)
        assert await replica.wait_for(lambda: len(failures) > 2, PATIENCE_S)
        assert {f.conversation for f in failures} == {written.id}
        assert {f.fault.reason for f in failures} == {StoreCorrupt.reason}
        assert replica.hub.is_linked


# --- own entries ------------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["body", "header_bytes", "signature"])
@pytest.mark.parametrize("is_linked", [False, True], ids=["offline", "linked"])
async def test_the_position_of_a_lost_own_entry_is_not_used_again(
    disk: Disk, part: str, is_linked: bool
) -> None:
    writer = Writer(1)
    genesis = writer.genesis()
    grant = writer.write(
        genesis.conversation, Member(Grant(Writer(2).public, Role.HOST)), parents=[genesis]
    )
    asked = Request(Writer(2).public, Sampling())
    lost = writer.write(genesis.conversation, asked, parents=[genesis])
    first = [genesis, grant]
    # The hub confirms all that is left: it never got the newest entry.
    await disk.fill(disk.hub, first)
    await disk.fill(disk.replica, [*first, lost])
    await asyncio.to_thread(flip_byte, disk.replica, getattr(lost, part))
    async with disk.running_hub() as hub:
        address = hub.address if is_linked else None
        for _ in range(2):
            async with Replica.open(disk.replica, writer.key, address) as replica:
                await replica.follow(genesis.conversation)
                if is_linked:
                    assert await replica.wait_synced(genesis.conversation)
                for text in ("one", "two"):
                    said_now = await replica.append(
                        genesis.conversation, said(text), parents=(EntryId(genesis.id),)
                    )
                    assert said_now.header.epoch != writer.epoch
                held = await replica.load(genesis.conversation)
                assert len(held.log.at(said_now.header.lane, 1)) == 1
                # The lost entry can be admitted again: its position is free.
                assert held.log.at(lost.header.lane, lost.header.seq) == ()
