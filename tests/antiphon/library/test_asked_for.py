"""What is left of a conversation that a program asked for by its id, and that did not come."""

import asyncio
import os

import pytest

from antiphon.library.io import replica as replicas
from replica.conversation import is_absent
from replica.ids import ConversationId
from replica.io import Replica
from replica.io.driver.driver import ReplicaDriver
from replica.link import SyncState
from replica.refusals import ConversationUnknown, HubUnreachable
from tests.antiphon.library.conftest import Lab
from tests.antiphon.library.test_silent_hub import silenced

FORMS = ["async"]


def invented() -> ConversationId:
    return ConversationId(os.urandom(32))


def is_followed(core: Replica, conversation: ConversationId) -> bool:
    return core.follows(conversation) or conversation in core.shelf


async def test_an_invented_id_is_not_asked_for_again(lab: Lab):
    async with lab.open() as me:
        core = me._replica
        for _ in range(3):
            unknown = invented()
            with pytest.raises(ConversationUnknown):
                await me.get(unknown)
            assert not is_followed(core, unknown)
            assert core.hub.state(unknown) is SyncState.OFFLINE
            assert core.hub.refusal(unknown) is None


async def test_nor_is_one_while_the_hub_is_away(lab: Lab):
    async with lab.open(hub="127.0.0.1:1") as me:
        unknown = invented()
        with pytest.raises(HubUnreachable):
            await me.get(unknown)
        assert not is_followed(me._replica, unknown)


async def test_a_conversation_that_is_granted_later_comes_by_itself(lab: Lab):
    async with lab.open() as me, lab.open("bob") as bob:
        trip = await me.conversation("trip")
        assert await trip.sync()
        with pytest.raises(ConversationUnknown):
            await bob.get(trip.id)
        await trip.grant(bob.key)
        assert await bob._replica.wait_for(lambda: is_followed(bob._replica, trip.id), 10.0)
        assert (await bob.get(trip.id)).id == trip.id


async def test_one_that_gives_up_before_the_store_has_answered_leaves_nothing_behind(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
):
    may_load, is_loading = asyncio.Event(), asyncio.Event()
    loading = ReplicaDriver.loading

    async def slow(driver: ReplicaDriver, conversation: ConversationId) -> None:
        is_loading.set()
        await may_load.wait()
        await loading(driver, conversation)

    async with lab.open() as me:
        unknown = invented()
        monkeypatch.setattr(ReplicaDriver, "loading", slow)
        waiting = [asyncio.create_task(me.get(unknown)) for _ in range(2)]
        await is_loading.wait()
        waiting[0].cancel()
        await asyncio.wait({waiting[0]})
        assert is_followed(me._replica, unknown)
        may_load.set()
        with pytest.raises(ConversationUnknown):
            await waiting[1]
        assert not is_followed(me._replica, unknown)


async def test_one_caller_that_gives_up_leaves_the_others_waiting(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(replicas, "SYNC_S", 20.0)
    async with silenced(lab) as (relay, address), lab.open("bob", hub=address) as bob:
        await bob._replica.wait_for(lambda: bob.is_linked, 10.0)
        unknown = invented()
        relay.runs.clear()
        waiting = [asyncio.create_task(bob.get(unknown)) for _ in range(2)]
        for _ in range(30):
            await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.wait({waiting[0]})
        assert is_followed(bob._replica, unknown)
        relay.runs.set()
        with pytest.raises(ConversationUnknown):
            await waiting[1]
        assert not is_followed(bob._replica, unknown)


async def test_a_conversation_that_is_here_stays_followed(lab: Lab):
    async with lab.open() as me:
        trip = await me.conversation("trip")
        assert (await me.get(trip.id)).id == trip.id
        held = me._replica.shelf[trip.id]
        assert not is_absent(held)
        assert is_followed(me._replica, trip.id)
