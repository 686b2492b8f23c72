"""The hub's loader: conversations are loaded on demand, each read once."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from replica.conversation.entry_store import Loaded
from replica.errors import StoreError
from replica.ids import ConversationId
from replica.io.blobs.blobs import Blobs
from replica.io.store.store import Store
from replica.link.messages import Entries
from replica.log.entry import Entry
from syncd.hub import Hub
from syncd.io.driver import HubDriver
from syncd.policy import Policy
from tests.support.callers import until
from tests.support.files import write_locked
from tests.support.writers import Writer, said


class Driven:
    """A driver with one stored conversation, whose reads can be delayed."""

    def __init__(self, driver: HubDriver, writer: Writer, genesis: Entry) -> None:
        self.driver, self.writer, self.last = driver, writer, genesis
        self.id = ConversationId(genesis.id)
        self.reads = 0
        self.held_up: set[int] = set()
        self.may_return = asyncio.Event()
        self._load = driver.store.load

    async def load(self, conversation: ConversationId, *, bodies: bool = True) -> Loaded:
        """Read from the store; delayed reads return when they are released."""
        entries = await self._load(conversation, bodies=bodies)
        number, self.reads = self.reads, self.reads + 1
        if number in self.held_up:
            await self.may_return.wait()
        return entries

    def take_off(self) -> None:
        """Drop the conversation from memory as after a failed write."""
        self.driver._undo(StoreError("a broken page"), {self.id})
        assert self.id not in self.driver.hub.shelf

    async def ensure_loaded(self) -> None:
        await self.driver._loader.ensure_loaded(self.writer.public, self.id)

    async def push(self) -> Entry:
        self.last = self.writer.write(self.id, said("more"), parents=[self.last])
        message = Entries(self.id, (self.last,))
        assert await self.driver.push(self.writer.public, message, dict) == {self.last.id: None}
        return self.last


@pytest.fixture
async def driven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Driven]:
    writer = Writer(1)
    genesis = writer.genesis()
    async with await Store.open(tmp_path / "log.db") as store:
        await store.append([genesis])
        driver = HubDriver(Hub(Writer(9).public, Policy()), store, Blobs(tmp_path / "blobs"))
        await driver.start()
        made = Driven(driver, writer, genesis)
        monkeypatch.setattr(store, "load", made.load)
        yield made
        await driver.stop()


async def test_a_load_waits_for_the_entries_of_no_other_conversation(driven: Driven):
    other = Writer(2)
    entry = other.genesis()
    driven.take_off()
    performer = driven.driver.performer
    async with write_locked(driven.driver.store):
        push = driven.driver.push(other.public, Entries(ConversationId(entry.id), (entry,)), dict)
        pushed = asyncio.create_task(push)
        await until(lambda: performer.writing == {ConversationId(entry.id)})
        await driven.ensure_loaded()
        assert performer.writing == {ConversationId(entry.id)}
    assert await pushed == {entry.id: None}


async def test_a_load_waits_for_the_entries_of_its_conversation(driven: Driven):
    performer = driven.driver.performer
    async with write_locked(driven.driver.store):
        pushed = asyncio.create_task(driven.push())
        await until(lambda: performer.writing == {driven.id})
        driven.take_off()
        loading = asyncio.create_task(driven.ensure_loaded())
        await asyncio.sleep(0)
    await loading
    assert (await pushed).id in driven.driver.hub.shelf[driven.id].log.entries


async def test_a_conversation_is_kept_for_all_who_asked_for_it(driven: Driven):
    loader = driven.driver._loader
    with loader.kept(driven.id):
        with loader.kept(driven.id):
            assert driven.id in loader.asked
        assert driven.id in loader.asked
    assert driven.id not in loader.asked


async def test_two_loads_at_once_give_one_conversation(driven: Driven):
    driven.take_off()
    driven.held_up = {1}
    loads = [asyncio.create_task(driven.ensure_loaded()) for _ in range(2)]
    await loads[0]
    held = driven.driver.hub.shelf[driven.id]
    await driven.push()
    driven.may_return.set()
    await loads[1]
    assert driven.driver.hub.shelf[driven.id] is held
    assert driven.reads == 1


async def test_a_caller_that_is_cancelled_leaves_the_load_to_others(driven: Driven):
    driven.take_off()
    driven.held_up = {0}
    loads = [asyncio.create_task(driven.ensure_loaded()) for _ in range(2)]
    await until(lambda: driven.reads == 1)
    loads[0].cancel()
    await asyncio.wait(loads[:1])
    driven.may_return.set()
    await loads[1]
    assert driven.id in driven.driver.hub.shelf
    assert driven.reads == 1


async def test_a_slow_load_never_brings_back_older_contents(driven: Driven):
    driven.take_off()
    driven.held_up = {1}
    loads = [asyncio.create_task(driven.ensure_loaded()) for _ in range(2)]
    await loads[0]
    entry = await driven.push()
    driven.take_off()
    driven.may_return.set()
    await loads[1]
    await driven.ensure_loaded()
    assert entry.id in driven.driver.hub.shelf[driven.id].log.entries


async def test_a_failed_load_is_repeated_for_the_next_caller(
    driven: Driven, monkeypatch: pytest.MonkeyPatch
):
    driven.take_off()

    async def fail(_conversation: ConversationId, *, bodies: bool = True) -> Loaded:
        raise StoreError("a broken page")

    with monkeypatch.context() as patch:
        patch.setattr(driven.driver.store, "load", fail)
        for _ in range(2):
            with pytest.raises(StoreError):
                await driven.ensure_loaded()
    await driven.ensure_loaded()
    assert driven.id in driven.driver.hub.shelf


async def test_a_conversation_deleted_while_it_is_read_stays_away(driven: Driven):
    driven.take_off()
    driven.held_up = {0}
    loading = asyncio.create_task(driven.ensure_loaded())
    await until(lambda: driven.reads > 0)
    driven.driver.hub.delete(driven.id)
    driven.may_return.set()
    await loading
    assert driven.id not in driven.driver.hub.shelf
