"""A hub with room for two of its five conversations, over gRPC and a real store (04-link §7)."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from antiphon.v1 import sync_pb2
from replica.ids import ConversationId
from replica.io.driver.replica import Replica
from replica.io.store.store import Store
from replica.link.events import SyncState
from replica.log.body import Grant, Member, Role
from replica.log.entry import Entry
from syncd.io.config import HubConfig
from syncd.io.server import HubServer, start
from tests.support.callers import PATIENCE_S, Caller, refused, until
from tests.support.writers import Writer, said

READER = Writer(2)
MEMORY = 2


class Five:
    """A hub with five conversations of one owner, and the owner's calls."""

    def __init__(self, hub: HubServer, owner: Caller) -> None:
        self.hub, self.owner = hub, owner
        self.writers = [Writer(1, epoch=number) for number in range(1, 6)]
        self.logs: list[list[Entry]] = []

    async def begin(self) -> "Five":
        for writer in self.writers:
            genesis = writer.genesis()
            grant = Member(Grant(READER.public, Role.READER))
            self.logs.append(
                [genesis, writer.write(genesis.conversation, grant, parents=[genesis])]
            )
            await self.push(self.logs[-1])
        return self

    async def push(self, entries: list[Entry]) -> None:
        outcomes = await self.owner.calls.push(entries[0].conversation, tuple(entries))
        assert set(outcomes.values()) == {None}

    @property
    def ids(self) -> list[ConversationId]:
        return [log[0].conversation for log in self.logs]

    @property
    def held(self) -> int:
        return len(self.hub.driver.hub.shelf)


async def serve(folder: Path) -> HubServer:
    return await start(
        HubConfig(data_dir=folder / "hub", listen="127.0.0.1:0", conversations_in_memory_max=MEMORY)
    )


@pytest.fixture
async def five(tmp_path: Path) -> AsyncIterator[Five]:
    hub = await serve(tmp_path)
    async with await Store.open(tmp_path / "pins.db") as store:
        owner = await Caller(hub.address, store, Writer(1).key).enter()
        five = await Five(hub, owner).begin()
        yield five
        await owner.calls.close()
    await five.hub.stop()


async def test_each_takes_a_push_and_answers_fetch_and_resolve(five: Five):
    for _ in range(2):
        for writer, log in zip(five.writers, five.logs, strict=True):
            log.append(writer.write(log[0].conversation, said("more"), parents=[log[0]]))
            await five.push(log[-1:])
            assert five.held <= MEMORY + 1
    for log in five.logs:
        fetched = await five.owner.calls.fetch(log[0].conversation, [e.id for e in log])
        assert set(fetched) == set(log)
        fate = await five.owner.calls.resolve(log[0].conversation, log[-1].id)
        assert fate.fate == sync_pb2.FATE_DURABLE
    await until(lambda: five.held <= MEMORY)


async def test_many_callers_at_once_are_all_answered(five: Five):
    async def ask(log: list[Entry]) -> None:
        for entry in log:
            fate = await five.owner.calls.resolve(log[0].conversation, entry.id)
            assert fate.fate == sync_pb2.FATE_DURABLE

    await asyncio.gather(*(ask(log) for log in five.logs for _ in range(5)))
    await until(lambda: five.held <= MEMORY)


async def test_a_follower_is_listed_all_and_opens_all(five: Five, tmp_path: Path):
    async with Replica.open(
        tmp_path / "reader.db", READER.key, five.hub.address, follow=True
    ) as reader:
        synced = {SyncState.SYNCHRONIZED}
        assert await reader.wait_for(
            lambda: {reader.hub.state(one) for one in five.ids} == synced, PATIENCE_S
        )
        assert set(reader.shelf) == set(five.ids)
        assert set(five.hub.driver.hub.shelf) == set(five.ids)  # all of them are open
        five.logs[0].append(five.writers[0].write(five.ids[0], said("!"), parents=five.logs[0][:1]))
        await five.push(five.logs[0][-1:])
        log = reader.shelf[five.ids[0]].log
        assert await reader.wait_for(lambda: five.logs[0][-1].id in log.entries, PATIENCE_S)
    await until(lambda: five.held <= MEMORY)


async def test_a_restarted_hub_serves_what_it_did_not_load(five: Five, tmp_path: Path):
    await five.hub.stop()
    five.hub = await serve(tmp_path)
    assert five.held == MEMORY
    async with await Store.open(tmp_path / "again.db") as store:
        reader = await Caller(five.hub.address, store, READER.key).enter()
        for log in five.logs:
            assert set(await reader.calls.fetch(log[0].conversation, [e.id for e in log])) == set(
                log
            )
        await reader.calls.close()


async def test_a_stranger_makes_the_hub_read_nothing(five: Five, tmp_path: Path):
    await until(lambda: five.held <= MEMORY)
    before = list(five.hub.driver.hub.shelf)
    async with await Store.open(tmp_path / "stranger.db") as store:
        stranger = await Caller(five.hub.address, store, Writer(9).key).enter()
        for conversation in five.ids:
            request = sync_pb2.ResolveRequest(conversation=conversation, id=bytes(32))
            call = stranger.sync.Resolve(request, metadata=stranger.metadata)
            assert await refused(call) == "CONVERSATION_NOT_FOUND"
        await stranger.calls.close()
    assert sorted(five.hub.driver.hub.shelf) == sorted(before)
