"""A replica with and without its hub: unsynced entries are counted, and sent later."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from replica.conversation.drafts import Draft
from replica.conversation.place import newest_place
from replica.core import pauses
from replica.errors import StoreError
from replica.ids import ConversationId, Digest, EntryId
from replica.io.driver.replica import Replica
from replica.link.events import (
    EntryFailed,
    SyncState,
)
from replica.log.body import Genesis, Grant, Member, Role
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


async def say(replica: Replica, conversation: ConversationId, *texts: str) -> None:
    """Append messages, each after the newest."""
    for text in texts:
        place = newest_place(await replica.load(conversation))
        await replica.append(conversation, said(text), parents=place.parents, basis=place.basis)


async def parted(replica: Replica, hub: HubOnOff) -> None:
    """Stop the hub, and wait until the replica knows."""
    await hub.stop()
    assert await replica.wait_for(lambda: not replica.hub.is_linked, 10.0)


async def test_without_any_hub_nothing_is_synced(tmp_path: Path):
    async with Replica.open(tmp_path / "store", ME.key) as replica:
        conversation = await replica.create(Genesis((replica.public,)))
        await say(replica, conversation, "one", "two")
        assert replica.hub.unsynced(conversation) == 3
    async with Replica.open(tmp_path / "store", ME.key) as replica:
        await replica.load(conversation)
        assert replica.hub.unsynced(conversation) == 3


async def test_a_hub_never_connected_holds_nothing(tmp_path: Path, hub: HubOnOff):
    await hub.stop()
    async with Replica.open(tmp_path / "store", ME.key, hub.address) as replica:
        conversation = await replica.create(Genesis((replica.public,)))
        await say(replica, conversation, "one")
        assert replica.hub.unsynced(conversation) == 2
        await hub.start()
        assert await replica.wait_synced(conversation)
        assert replica.hub.unsynced(conversation) == 0


async def test_entries_written_without_the_hub_are_unsynced_until_it_is_back(
    tmp_path: Path, hub: HubOnOff
):
    async with Replica.open(tmp_path / "store", ME.key, hub.address) as replica:
        conversation = await replica.create(Genesis((replica.public,)))
        await say(replica, conversation, "one", "two")
        assert await replica.wait_synced(conversation)
        await parted(replica, hub)
        assert replica.hub.unsynced(conversation) == 0
        await say(replica, conversation, "three", "four")
        assert replica.hub.unsynced(conversation) == 2
        assert replica.hub.state(conversation) is SyncState.OFFLINE
    for address in (None, hub.address):
        async with Replica.open(tmp_path / "store", ME.key, address) as replica:
            await replica.load(conversation)
            assert replica.hub.unsynced(conversation) == 2
            await replica.follow(conversation)
            assert replica.hub.unsynced(conversation) == 2
    await hub.start()
    async with Replica.open(tmp_path / "store", ME.key, hub.address) as replica:
        await replica.follow(conversation)
        assert await replica.wait_synced(conversation)
        assert replica.hub.unsynced(conversation) == 0
    assert hub.server is not None
    assert len(hub.server.driver.hub.shelf[conversation].log) == 5


async def test_entries_from_the_hub_count_as_held_there(tmp_path: Path, hub: HubOnOff):
    async with (
        Replica.open(tmp_path / "mine", ME.key, hub.address) as me,
        Replica.open(tmp_path / "friends", FRIEND.key, hub.address, follow=True) as friend,
    ):
        conversation = await me.create(Genesis((me.public,)))
        grant = Member(Grant(friend.public, Role.WRITER))
        await me.append(conversation, grant, parents=(EntryId(conversation),))
        assert await friend.wait_for(lambda: conversation in friend.shelf, 10.0)
        await say(me, conversation, "one", "two")
        assert await friend.wait_for(lambda: len(friend.shelf[conversation].log) == 4, 10.0)
        await parted(friend, hub)
        assert friend.hub.unsynced(conversation) == 0
        await say(friend, conversation, "three")
        assert friend.hub.unsynced(conversation) == 1
    async with Replica.open(tmp_path / "friends", FRIEND.key) as friend:
        await friend.load(conversation)
        assert friend.hub.unsynced(conversation) == 1


async def test_entries_the_hub_refused_count_as_unsynced(tmp_path: Path, hub: HubOnOff):
    await hub.stop()
    hub.entries_max = 2
    await hub.start()
    async with Replica.open(tmp_path / "store", ME.key, hub.address) as replica:
        refused: list[EntryId | None] = []
        replica.listen(lambda e: refused.append(e.entry) if isinstance(e, EntryFailed) else None)
        conversation = await replica.create(Genesis((replica.public,)))
        await say(replica, conversation, "one", "too many")
        assert await replica.wait_for(lambda: bool(refused), 10.0)
        assert not await replica.wait_synced(conversation)
        refusal = replica.hub.refusal(conversation)
        assert refusal is not None and refusal.reason == "QUOTA_EXCEEDED"
        assert replica.hub.unsynced(conversation) == 1
        assert replica.hub.is_in_sync(conversation)
        await parted(replica, hub)
        assert replica.hub.unsynced(conversation) == 1


async def test_a_conversation_the_hub_had_to_leave_is_opened_again(
    tmp_path: Path, hub: HubOnOff, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(pauses, "REOPEN_FIRST_S", 0.01)
    assert hub.server is not None
    driver = hub.server.driver
    async with Replica.open(tmp_path / "store", ME.key, hub.address) as replica:
        conversation = await replica.create(Genesis((replica.public,)))
        assert await replica.wait_synced(conversation)
        driver._undo(StoreError("a broken page"), {conversation})
        assert await replica.wait_for(
            lambda: not replica.hub.is_acked(conversation, EntryId(conversation)), 10.0
        )
        assert replica.hub.state(conversation) is SyncState.OFFLINE
        await say(replica, conversation, "still here")
        assert await replica.wait_synced(conversation)
    assert len(driver.hub.shelf[conversation].log) == 2


async def test_a_conversation_that_only_left_memory_is_waited_for(tmp_path: Path, hub: HubOnOff):
    await hub.stop()
    async with Replica.open(tmp_path / "store", ME.key, hub.address) as replica:
        conversation = await replica.create(Genesis((replica.public,)))
        replica.unfollow(conversation)
        waiting = asyncio.create_task(replica.wait_synced(conversation))
        await asyncio.sleep(0)
        replica._driver.evict(conversation)
        await replica.flush()
        assert conversation not in replica.shelf
        await replica.follow(conversation)
        await hub.start()
        assert await waiting


async def test_whoever_sends_a_draft_learns_whether_there_was_credit(tmp_path: Path, hub: HubOnOff):
    async with Replica.open(tmp_path / "store", ME.key, hub.address) as replica:
        conversation = await replica.create(Genesis((replica.public,)))
        draft = Draft(conversation, EntryId(bytes(32)), 1, 0, (1,), 0, b"a", Digest(bytes(32)))
        assert await replica.wait_synced(conversation)
        assert replica.send_draft(draft)
        link = replica._core.link._link
        assert link is not None
        link.flow.sent_limit = link.flow.sent_bytes
        assert not replica.send_draft(draft)
        await parted(replica, hub)
        assert not replica.send_draft(draft)


async def test_a_listener_that_raises_stops_nothing(tmp_path: Path):
    async with Replica.open(tmp_path / "store", ME.key) as replica:
        replica.listen(lambda _event: {}.pop("bug"))
        conversation = await replica.create(Genesis((replica.public,)))
        await say(replica, conversation, "one")
        assert replica.hub.unsynced(conversation) == 2
