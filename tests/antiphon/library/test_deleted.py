"""A conversation that is deleted from the folder while a program has it open."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import antiphon
from replica.io import Replica, keys
from replica.refusals import ConversationUnknown
from syncd.io.config import HubConfig
from syncd.io.server import start
from tests.antiphon.library.conftest import Lab
from tests.support.writers import Writer

FORMS = ["blocking"]


@asynccontextmanager
async def another_process(lab: Lab) -> AsyncIterator[Replica]:
    """Open the folder of "me" once more, without a hub, as `antiphon delete` does."""
    folder = lab.folder / "me"
    key = keys.load_or_create(folder / "identity.key")
    async with Replica.open(folder / "log" / "log.db", key, shared=True) as other:
        yield other


@asynccontextmanager
async def both(lab: Lab, is_first: bool) -> AsyncIterator[tuple[Any, Replica]]:
    """Open the folder in a program, and in another process: the first one holds the store."""
    opening = (lab.open(), another_process(lab))
    async with opening[not is_first] as one, opening[is_first] as two:
        yield (one, two) if is_first else (two, one)


async def until_raised(events: Any) -> None:
    """Read events for ever."""
    async for _ in events:
        pass


@pytest.mark.parametrize("is_first", [True, False])
async def test_whoever_reads_a_conversation_is_told_that_it_was_deleted(lab: Lab, is_first: bool):
    """The program holds the store itself, or another process does."""
    async with both(lab, is_first) as (me, other):
        trip = await me.conversation("trip")
        assert await trip.sync()
        reading = trip.events()
        await trip.say("Good morning.")
        async with asyncio.timeout(10):
            await anext(reading)
        waiting = asyncio.create_task(until_raised(reading))
        await asyncio.sleep(0)
        assert lab.hub is not None
        await lab.hub.driver.delete(me.key, trip.id)
        await other.delete(trip.id)
        for call in (waiting, trip.history(), until_raised(trip.events()), trip.sync(20.0)):
            with pytest.raises(ConversationUnknown):
                async with asyncio.timeout(10):
                    await call


@pytest.mark.parametrize("is_first", [True, False])
async def test_a_sync_in_progress_ends_with_the_conversation(lab: Lab, is_first: bool):
    async with both(lab, is_first) as (me, other):
        trip = await me.conversation("trip")
        assert lab.hub is not None
        await lab.hub.stop()  # so that it waits
        waiting = asyncio.create_task(trip.sync(60.0))
        await asyncio.sleep(0)
        await other.delete(trip.id)
        with pytest.raises(ConversationUnknown):
            async with asyncio.timeout(10):
                await waiting


@pytest.mark.parametrize("is_first", [True, False])
async def test_a_run_that_waits_for_its_answer_ends_with_the_conversation(lab: Lab, is_first: bool):
    """It waited without end, and one with a timeout said that the request stays in the log."""
    async with both(lab, is_first) as (me, other):
        trip = await me.conversation("trip")
        await trip.grant(Writer(6).public, "host")  # which never answers
        events = aiter(trip.run("Good morning."))
        while not isinstance(await anext(events), antiphon.Asked):
            pass
        waiting = asyncio.create_task(anext(events))
        await other.delete(trip.id)
        with pytest.raises(ConversationUnknown):
            async with asyncio.timeout(10):
                await waiting


@pytest.mark.parametrize("is_first", [True, False])
async def test_a_sync_of_all_leaves_out_what_is_deleted_meanwhile(lab: Lab, is_first: bool):
    """It waited for its timeout, and was False."""
    async with both(lab, is_first) as (me, other):
        plan = await me.conversation("plan")
        assert await plan.sync()
        assert lab.hub is not None
        await lab.hub.stop()
        trip = await me.conversation("trip")  # of which the hub hears nothing
        waiting = asyncio.create_task(me.sync(60.0))
        await asyncio.sleep(0)
        await other.delete(trip.id)
        again = HubConfig(data_dir=lab.folder / "hub", listen=lab.hub.address)
        lab.stack.push_async_callback((await start(again)).stop)
        async with asyncio.timeout(30):
            assert await waiting


async def test_a_deletion_leaves_no_name_in_the_folder(lab: Lab):
    """The title stayed, as the name by which the folder found the conversation."""
    async with lab.open() as me:
        await me.conversation("confidential title")
        kept = await me.conversation("kept")
    async with another_process(lab) as other:
        for stored in await other.store.conversations():
            if stored.conversation != kept.id:
                await other.delete(stored.conversation)
    files = [path for path in (lab.folder / "me").rglob("*") if path.is_file()]
    assert not [path for path in files if b"confidential" in path.read_bytes()]
    async with lab.open() as me:
        assert (await me.conversation("kept")).id == kept.id
        assert await me.conversation("confidential title")
