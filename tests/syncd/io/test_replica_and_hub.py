"""A client with and without its hub: what is not there yet is counted, and sent later."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from replica.conversation.conversation import Conversation, Shelf
from replica.conversation.place import newest_place
from replica.errors import StoreError
from replica.ids import ConversationId, EntryId
from replica.io import hub_link
from replica.io.acks import Acks
from replica.io.hub_calls import HubCalls
from replica.io.hub_link import HubLink
from replica.io.performer import Performer
from replica.io.replica import Client
from replica.io.store import Store
from replica.link.events import (
    EntriesAdmitted,
    EntryFailed,
    Event,
    LinkClosed,
    StateChanged,
    SyncState,
)
from replica.link.messages import Fault, Hello
from replica.log.body import Genesis, Grant, Member, Role
from replica.log.entry import Entry
from replica.refusals import StoreFull
from syncd.io.config import HubConfig
from syncd.io.server import HubServer, start
from tests.support.writers import Writer, said

ME, FRIEND = Writer(1), Writer(2)


class HubOnOff:
    """A hub that can be stopped and started again at one address."""

    def __init__(self, folder: Path) -> None:
        self.server: HubServer | None = None
        self.address = "127.0.0.1:0"
        self.entries_max = 1000
        self._folder = folder

    async def start(self) -> None:
        config = HubConfig(data_dir=self._folder, listen=self.address, entries_max=self.entries_max)
        self.server = await start(config)
        self.address = self.server.address

    async def stop(self) -> None:
        if self.server is not None:
            await self.server.stop()
            self.server = None


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[HubOnOff]:
    made = HubOnOff(tmp_path / "hub")
    await made.start()
    yield made
    await made.stop()


async def say(client: Client, conversation: ConversationId, *texts: str) -> None:
    """Append messages, each after the newest."""
    for text in texts:
        place = newest_place(await client.load(conversation))
        await client.append(conversation, said(text), parents=place.parents, basis=place.basis)


async def parted(client: Client, hub: HubOnOff) -> None:
    """Stop the hub, and wait until the client knows."""
    await hub.stop()
    assert await client.wait_for(lambda: not client.is_linked, 10.0)


async def test_without_any_hub_nothing_is_synced(tmp_path: Path):
    async with Client.open(tmp_path / "store", ME.key) as client:
        conversation = await client.create(Genesis((client.public,)))
        await say(client, conversation, "one", "two")
        assert client.unsynced(conversation) == 3
    async with Client.open(tmp_path / "store", ME.key) as client:
        await client.load(conversation)
        assert client.unsynced(conversation) == 3


async def test_a_hub_never_met_holds_nothing(tmp_path: Path, hub: HubOnOff):
    await hub.stop()
    async with Client.open(tmp_path / "store", ME.key, hub.address) as client:
        conversation = await client.create(Genesis((client.public,)))
        await say(client, conversation, "one")
        assert client.unsynced(conversation) == 2
        await hub.start()
        assert await client.wait_synced(conversation)
        assert client.unsynced(conversation) == 0


async def test_what_is_written_without_the_hub_is_unsynced_until_it_is_back(
    tmp_path: Path, hub: HubOnOff
):
    async with Client.open(tmp_path / "store", ME.key, hub.address) as client:
        conversation = await client.create(Genesis((client.public,)))
        await say(client, conversation, "one", "two")
        assert await client.wait_synced(conversation)
        await parted(client, hub)
        assert client.unsynced(conversation) == 0
        await say(client, conversation, "three", "four")
        assert client.unsynced(conversation) == 2
        assert client.state(conversation) is SyncState.OFFLINE
    for address in (None, hub.address):
        async with Client.open(tmp_path / "store", ME.key, address) as client:
            await client.load(conversation)
            assert client.unsynced(conversation) == 2
            await client.follow(conversation)
            assert client.unsynced(conversation) == 2
    await hub.start()
    async with Client.open(tmp_path / "store", ME.key, hub.address) as client:
        await client.follow(conversation)
        assert await client.wait_synced(conversation)
        assert client.unsynced(conversation) == 0
    assert hub.server is not None
    assert len(hub.server.driver.hub.shelf[conversation].log) == 5


async def test_what_came_from_the_hub_is_held_there(tmp_path: Path, hub: HubOnOff):
    async with (
        Client.open(tmp_path / "mine", ME.key, hub.address) as me,
        Client.open(tmp_path / "friends", FRIEND.key, hub.address, follow=True) as friend,
    ):
        conversation = await me.create(Genesis((me.public,)))
        grant = Member(Grant(friend.public, Role.WRITER))
        await me.append(conversation, grant, parents=(EntryId(conversation),))
        assert await friend.wait_for(lambda: conversation in friend.shelf, 10.0)
        await say(me, conversation, "one", "two")
        assert await friend.wait_for(lambda: len(friend.shelf[conversation].log) == 4, 10.0)
        await parted(friend, hub)
        assert friend.unsynced(conversation) == 0
        await say(friend, conversation, "three")
        assert friend.unsynced(conversation) == 1
    async with Client.open(tmp_path / "friends", FRIEND.key) as friend:
        await friend.load(conversation)
        assert friend.unsynced(conversation) == 1


async def test_what_the_hub_refused_it_does_not_hold(tmp_path: Path, hub: HubOnOff):
    await hub.stop()
    hub.entries_max = 2
    await hub.start()
    async with Client.open(tmp_path / "store", ME.key, hub.address) as client:
        refused: list[EntryId | None] = []
        client.listen(lambda e: refused.append(e.entry) if isinstance(e, EntryFailed) else None)
        conversation = await client.create(Genesis((client.public,)))
        await say(client, conversation, "one", "too many")
        assert await client.wait_for(lambda: bool(refused), 10.0)
        await parted(client, hub)
        assert client.unsynced(conversation) == 1


class Bare:
    """A link to the hub without a client around it: one conversation, stored before."""

    def __init__(self, store: Store, calls: HubCalls, acks: Acks) -> None:
        self.store = store
        self.writer = Writer(1)
        self.entries = [self.writer.genesis()]
        self.id = ConversationId(self.entries[0].id)
        self.shelf: Shelf = {}
        self.heard: list[Event] = []
        self.is_synced = asyncio.Event()
        self.failures = 0
        self.performer = Performer(store, lambda *_failure: None)
        self.link = HubLink(
            calls, Hello((1,)), key=ME.public, shelf=self.shelf, performer=self.performer,
            acks=acks, load=self.load, tell=self.tell,
        )  # fmt: skip

    async def load(self, conversation: ConversationId) -> None:
        if self.failures:
            self.failures -= 1
            raise StoreError("a broken page")
        if conversation not in self.shelf:
            stored = await self.store.load(conversation)
            self.shelf[conversation] = Conversation.restore(conversation, stored)

    def tell(self, event: Event) -> None:
        self.heard.append(event)
        if event == StateChanged(self.id, SyncState.SYNCHRONIZED):
            self.is_synced.set()

    def next_entry(self) -> Entry:
        self.entries.append(self.writer.write(self.id, said("next"), parents=self.entries[-1:]))
        return self.entries[-1]

    async def stop(self) -> None:
        await self.link.stop()
        await self.performer.stop()


@pytest.fixture
async def bare(tmp_path: Path, hub: HubOnOff) -> AsyncIterator[Bare]:
    async with await Store.open(tmp_path / "store") as store:
        calls = HubCalls(hub.address, ME.key, store)
        made = Bare(store, calls, await Acks.of_hub(store, hub.address))
        await store.append([made.entries[0], made.next_entry()])
        made.performer.start()
        made.link.start()
        await made.link.follow(made.id, drafts=True)
        async with asyncio.timeout(10.0):
            await made.is_synced.wait()
        yield made
        await made.stop()
        await calls.close()


async def test_a_conversation_the_disk_refused_is_read_again_before_it_is_opened(bare: Bare):
    bare.is_synced.clear()
    del bare.shelf[bare.id]
    bare.link.abandon(bare.id, Fault.of(StoreFull(), bare.id))
    async with asyncio.timeout(10.0):
        await bare.is_synced.wait()
    assert len(bare.shelf[bare.id].log) == 2
    # Nothing had to come from the hub again.
    assert not any(isinstance(event, EntriesAdmitted) for event in bare.heard)


async def test_a_conversation_that_can_not_be_read_now_is_read_later(
    bare: Bare, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(hub_link, "REOPEN_FIRST_S", 0.01)
    bare.is_synced.clear()
    del bare.shelf[bare.id]
    bare.failures = 2
    bare.link.abandon(bare.id, Fault.of(StoreFull(), bare.id))
    async with asyncio.timeout(10.0):
        await bare.is_synced.wait()
    assert bare.failures == 0
    assert len(bare.shelf[bare.id].log) == 2


async def test_a_dropped_link_tells_of_its_end_last(bare: Bare):
    entry = bare.next_entry()
    bare.link.append(entry, more_follow=False)
    await bare.stop()
    assert bare.heard[-3:] == [
        EntriesAdmitted(bare.id, (entry,)),
        StateChanged(bare.id, SyncState.OFFLINE),
        LinkClosed(),
    ]


async def test_a_conversation_the_hub_had_to_leave_is_opened_again(
    tmp_path: Path, hub: HubOnOff, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(hub_link, "REOPEN_FIRST_S", 0.01)
    assert hub.server is not None
    driver = hub.server.driver
    async with Client.open(tmp_path / "store", ME.key, hub.address) as client:
        conversation = await client.create(Genesis((client.public,)))
        assert await client.wait_synced(conversation)
        driver._undo(StoreError("a broken page"), {conversation})
        assert await client.wait_for(
            lambda: not client.is_acked(conversation, EntryId(conversation)), 10.0
        )
        assert client.state(conversation) is SyncState.OFFLINE
        await say(client, conversation, "still here")
        assert await client.wait_synced(conversation)
    assert len(driver.hub.shelf[conversation].log) == 2


async def test_a_listener_that_raises_stops_nothing(tmp_path: Path):
    async with Client.open(tmp_path / "store", ME.key) as client:
        client.listen(lambda _event: {}.pop("bug"))
        conversation = await client.create(Genesis((client.public,)))
        await say(client, conversation, "one")
        assert client.unsynced(conversation) == 2
