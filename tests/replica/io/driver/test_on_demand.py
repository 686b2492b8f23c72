"""A host over gRPC that more conversations are granted to than it may have open."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from replica.core.selection import FollowPolicy, LeftOut
from replica.ids import ConversationId, EntryId, PublicKey
from replica.io.calls.hub_calls import HubCalls
from replica.io.driver.listing import hear_list
from replica.io.driver.on_demand import ASK_TIMEOUT_S
from replica.io.driver.replica import Replica
from replica.io.store.store import Store
from replica.link.events import SyncState
from replica.log.body import Grant, Member, Request, Revocation, Role, Sampling
from tests.support.callers import PATIENCE_S, ServedHub, serve_hub, until
from tests.support.scripted_host import ScriptedHost, scripted_host
from tests.support.writers import Writer, said

POLICY = FollowPolicy(open_max=4, per_creator_max=3, unasked_max=1, idle_s=3_600.0)
STRANGERS = 10


class Person:
    """A key that begins a conversation, grants the host its role, and asks."""

    def __init__(self, calls: HubCalls, number: int) -> None:
        self.calls, self.writer = calls, Writer(number)
        self.last = self.genesis = self.writer.genesis()
        self.id = ConversationId(self.genesis.id)

    async def begin(self, host: PublicKey) -> None:
        granted = Member(Grant(host, Role.HOST))
        self.grant = self.writer.write(self.id, granted, parents=[self.genesis])
        await self.calls.push(self.id, (self.genesis, self.grant))

    async def ask(self, host: PublicKey) -> EntryId:
        words = self.writer.write(self.id, said("hi"), parents=[self.last])
        self.last = self.writer.write(self.id, Request(host, Sampling()), parents=[words])
        outcomes = await self.calls.push(self.id, (words, self.last))
        assert not any(outcomes.values())
        return self.last.id


@asynccontextmanager
async def scene(
    folder: Path, policy: FollowPolicy
) -> AsyncIterator[tuple[ServedHub, ScriptedHost, list[Person]]]:
    """Run a hub and a host, and let strangers and one more person grant HOST to it."""
    async with serve_hub(folder) as served, await Store.open(folder / "pins2.db") as store:
        address = served.hub.address
        async with scripted_host(folder / "host", address, follow=policy) as host:
            people = []
            for number in range(20, 21 + STRANGERS):
                calls = HubCalls(address, Writer(number).key, store)
                people.append(Person(calls, number))
                await people[-1].begin(host.replica.public)
            try:
                yield served, host, people
            finally:
                for person in people:
                    await person.calls.close()


async def test_each_of_them_is_answered_in_its_turn(tmp_path: Path) -> None:
    async with scene(tmp_path, POLICY) as (served, host, people):
        selection, shelf = host.replica.on_demand.selection, served.hub.driver.hub.shelf
        counts = selection.left_out
        await until(lambda: counts()[LeftOut.NOT_ASKED] == STRANGERS and bool(selection.open))
        for person in people:
            request = await person.ask(host.replica.public)
            held = shelf[person.id]
            await until(lambda held=held, one=request: held.order.generation_of(one) is not None)
            assert len(selection.open) <= POLICY.open_max
        await until(lambda: len(host.replica.shelf) <= POLICY.open_max)
        assert len(selection.open) == POLICY.open_max
        # Of those that were closed nothing is left.
        assert host.replica.acks._acked_ms.keys() <= set(host.replica.shelf)


async def test_a_conversation_is_opened_for_a_call_and_stays_open_for_it(tmp_path: Path) -> None:
    policy = FollowPolicy(open_max=1, unasked_max=0)
    async with scene(tmp_path, policy) as (_, host, people):
        first, second = people[0].id, people[1].id
        demand, replica = host.replica.on_demand, host.replica
        await replica.wait_for(lambda: demand.selection.may_open(second), PATIENCE_S)
        await demand.ask(first)
        assert replica.hub.state(first) is SyncState.SYNCHRONIZED
        with demand.using(first):
            demand.selection.ask(second)
            await replica.flush()
            assert (first in replica.shelf, second in replica.shelf) == (True, False)
        await demand.ask(second)
        assert replica.hub.state(second) is SyncState.SYNCHRONIZED
        await until(lambda: first not in replica.shelf)


async def test_only_the_conversations_of_named_creators_are_opened(tmp_path: Path) -> None:
    honest = Writer(20 + STRANGERS).public
    policy = FollowPolicy(creators=frozenset({honest}))
    async with scene(tmp_path, policy) as (_, host, people):
        counts = host.replica.on_demand.selection.left_out
        await until(lambda: counts()[LeftOut.CREATOR] == STRANGERS)
        await until(lambda: people[-1].id in host.replica.shelf)
        assert list(host.replica.shelf) == [people[-1].id]
        await host.replica.on_demand.ask(people[0].id)
        assert people[0].id not in host.replica.shelf


async def test_the_beginning_of_the_list_is_heard_unless_the_hub_is_away(tmp_path: Path) -> None:
    closed = FollowPolicy(open_max=1, unasked_max=0)
    async with AsyncExitStack() as opened:
        async with scene(tmp_path, POLICY) as (served, _, people):
            person, address = people[0], served.hub.address
            store, key = tmp_path / "mine.db", person.writer.key
            opening = Replica.open(store, key, address, follow=closed)
            mine = await opened.enter_async_context(opening)
            await hear_list(mine, PATIENCE_S)
            assert mine.on_demand.selection.listed == {person.id}
            assert person.id not in mine.shelf
        assert await mine.wait_for(lambda: mine.hub.is_away, PATIENCE_S)
        async with asyncio.timeout(ASK_TIMEOUT_S / 2):
            await mine.on_demand.ask(person.id)  # ends at once
    async with Replica.open(store, key, address, follow=closed) as mine:
        await hear_list(mine, PATIENCE_S)
        assert mine.hub.is_away


async def test_who_asks_for_a_conversation_that_the_hub_refuses_waits_for_nothing(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path, POLICY) as (_, host, people):
        person, replica = people[-1], host.replica
        await person.ask(replica.public)
        await until(lambda: person.id in replica.shelf)
        removal = person.writer.write(
            person.id, Member(Revocation(replica.public, ())), parents=[person.grant]
        )
        await person.calls.push(person.id, (removal,))
        await until(lambda: replica.hub.state(person.id) is SyncState.DENIED)
        async with asyncio.timeout(ASK_TIMEOUT_S / 2):
            await replica.on_demand.ask(person.id)
