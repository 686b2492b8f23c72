"""Model hosts that come, go and are replaced while a program is linked to their hub."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import antiphon
from replica.ids import PublicKey
from replica.io import Replica, begin, keys, linked_hosts
from replica.log.entry import public_key
from syncd.io.config import HubConfig
from syncd.io.server import start
from tests.antiphon.library.conftest import Lab
from tests.support.scripted_host import Pace, ScriptedHost, no_pause, scripted_host
from tests.support.talk import key_of

FORMS = ["blocking"]

WAIT_S = 20.0


class Pair(Lab):
    """A lab whose hub vouches for two hosts, `first` and `second`."""

    def key(self, name: str) -> PublicKey:
        return public_key(keys.load_or_create(self.folder / name / "identity.key"))

    async def start_hub(self, *, vouches: bool = True, port: int = 0):
        vouched = [self.key(name).hex() for name in ("first", "second")] if vouches else []
        config = HubConfig(
            data_dir=self.folder / "hub", listen=f"127.0.0.1:{port}", host_keys=vouched
        )
        self.hub = await start(config)
        return self.hub

    def host(self, name: str, pace: Pace = no_pause) -> AbstractAsyncContextManager[ScriptedHost]:
        assert self.hub is not None
        return scripted_host(self.folder / name, self.hub.address, pace=pace)

    async def named(self) -> set[PublicKey]:
        """Return the hosts that the hub names now."""
        assert self.hub is not None
        return {host.key for host in await linked_hosts(self.hub.address, key_of(9), None)}

    async def left(self, name: str) -> None:
        """Wait until a host that was stopped has left the hub."""
        async with asyncio.timeout(WAIT_S):
            while self.key(name) in await self.named():
                pass


@pytest.fixture
async def pair(tmp_path: Path, lab_form: str) -> AsyncIterator[Pair]:
    pair = Pair(tmp_path, lab_form)
    await pair.start_hub()
    yield pair
    assert pair.hub is not None
    await pair.hub.stop()


async def test_a_host_that_links_later_is_found(pair: Pair):
    async with pair.open() as me:
        trip = await me.conversation("trip")
        with pytest.raises(antiphon.NoHost):
            await trip.ask("Capital?")
        async with pair.host("first"):
            assert (await trip.ask("Now?")).text == "You said: Now?"


async def test_a_host_that_returned_to_a_restarted_hub_is_found(pair: Pair):
    assert pair.hub is not None
    async with pair.open() as me:
        await pair.hub.stop()
        port = int(pair.hub.address.rpartition(":")[2])
        await pair.start_hub(port=port)
        assert await me.sync(WAIT_S)  # linked to a hub without a host, whose Welcome names none
        async with pair.host("first"):
            trip = await me.conversation("trip")
            assert (await trip.ask("Capital?", timeout_s=WAIT_S)).text == "You said: Capital?"


async def test_a_host_that_left_is_granted_nothing_more(pair: Pair):
    async with AsyncExitStack() as stack, pair.open() as me:
        async with pair.host("first"):
            assert (await (await me.conversation("one")).ask("Capital?")).text
        await stack.enter_async_context(pair.host("second"))
        await pair.left("first")
        two = await me.conversation("two")
        assert (await two.ask("Capital?", timeout_s=WAIT_S)).text == "You said: Capital?"


async def test_of_several_hosts_of_a_conversation_the_linked_one_is_asked(pair: Pair):
    async with AsyncExitStack() as stack, pair.open() as me:
        trip = await me.conversation("trip")
        for name in ("first", "second"):
            await trip.grant(pair.key(name), "host")
        async with pair.host("first"):
            await trip.ask("Capital?", timeout_s=WAIT_S)
        await stack.enter_async_context(pair.host("second"))
        await pair.left("first")
        assert (await trip.ask("Now?", timeout_s=WAIT_S)).text == "You said: Now?"


async def never(_index: int) -> None:
    """Answer with no word."""
    await asyncio.Event().wait()


async def begin_answer(trip: Any) -> None:
    """Ask under the key job-17, and leave the run once its host has begun."""
    async for event in trip.run("Capital?", key="job-17"):
        if isinstance(event, antiphon.Sealed):
            break


async def test_a_cancelled_turn_does_not_wait_for_a_host_that_left(pair: Pair):
    """It waited for ever, also under its key later, and advised to cancel it again."""
    async with AsyncExitStack() as stack, pair.open() as me, asyncio.timeout(WAIT_S):
        trip = await me.conversation("trip")
        async with pair.host("first", never):
            await begin_answer(trip)
        await pair.left("first")
        asking = asyncio.create_task(trip.ask("Capital?", key="job-17"))
        await trip.cancel()
        for waiting in (asking, trip.ask("Capital?", key="job-17")):
            with pytest.raises(antiphon.AnswerOverdue, match="has left the hub") as caught:
                await waiting
        assert "under another `key`" in caught.value.next_step
        await stack.enter_async_context(pair.host("second"))
        await trip.grant(pair.key("second"), "host")
        assert (await trip.ask("Capital?", key="job-18")).text == "You said: Capital?"


async def test_a_turn_does_not_wait_for_a_host_that_was_removed(pair: Pair):
    """It waited for ever, without a word."""
    async with AsyncExitStack() as stack, pair.open() as me, asyncio.timeout(WAIT_S):
        trip = await me.conversation("trip")
        await stack.enter_async_context(pair.host("first", never))
        await begin_answer(trip)
        asking = asyncio.create_task(trip.ask("Capital?", key="job-17"))
        await trip.remove(pair.key("first"))
        with pytest.raises(antiphon.AnswerOverdue, match="was removed") as caught:
            await asking
        assert caught.value.next_step.startswith("Call `cancel(error.request)`")
        await trip.cancel(caught.value.request)
        await stack.enter_async_context(pair.host("second"))
        await trip.grant(pair.key("second"), "host")
        assert (await trip.ask("Capital?", key="job-18")).text == "You said: Capital?"


async def test_a_conversation_whose_host_was_removed_is_granted_to_another_one(pair: Pair):
    """The removed host was chosen again: KEY_REMOVED, with the advice to join with a new key."""
    async with AsyncExitStack() as stack, pair.open() as me, asyncio.timeout(WAIT_S):
        trip = await me.conversation("trip")
        await stack.enter_async_context(pair.host("first"))
        await trip.ask("Capital?")
        await trip.remove(pair.key("first"))
        with pytest.raises(antiphon.HostMissing, match="was removed from the conversation"):
            await trip.ask("Now?")
        await stack.enter_async_context(pair.host("second"))
        assert (await trip.ask("Now?")).text == "You said: Now?"


async def test_a_pinned_host_that_was_removed_is_replaced_by_no_other(pair: Pair):
    async with pair.host("first"), pair.host("second"), pair.open(host=pair.key("first")) as me:
        trip = await me.conversation("trip")
        await trip.remove(pair.key("first"))
        with pytest.raises(antiphon.HostMissing, match="was removed from the conversation"):
            await trip.ask("Capital?")


async def test_a_new_conversation_waits_for_the_host_of_a_restarted_hub(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
):
    """It was refused at once: the hub had no host for the first seconds."""
    assert pair.hub is not None
    loop, asked, learn_hosts = asyncio.get_running_loop(), asyncio.Event(), begin.learn_hosts

    async def note(replica: Replica, *timeout_s: float) -> None:
        await learn_hosts(replica, *timeout_s)
        loop.call_soon_threadsafe(asked.set)

    async with AsyncExitStack() as stack, pair.open() as me:
        async with pair.host("first"):
            await (await me.conversation("one")).ask("Capital?", timeout_s=WAIT_S)
        await pair.left("first")
        port = int(pair.hub.address.rpartition(":")[2])
        await pair.hub.stop()
        await pair.start_hub(port=port)
        await me.sync()
        monkeypatch.setattr(begin, "learn_hosts", note)
        asking = asyncio.create_task((await me.conversation("two")).ask("Now?", timeout_s=WAIT_S))
        await asked.wait()
        await stack.enter_async_context(pair.host("first"))
        assert (await asking).text == "You said: Now?"


async def test_without_a_grant_of_the_hub_s_operator_a_later_host_is_given_nothing(pair: Pair):
    assert pair.hub is not None
    await pair.hub.stop()
    await pair.start_hub(vouches=False)
    async with pair.open() as me:
        trip = await me.conversation("trip")
        async with pair.host("first"):
            with pytest.raises(antiphon.NoHost, match="vouches for none of the model hosts"):
                await trip.ask("Capital?")


async def test_the_hosts_that_were_learned_of_are_an_event(pair: Pair):
    async with AsyncExitStack() as stack, pair.open() as me:
        trip, events = await me.conversation("trip"), me.events()
        await stack.enter_async_context(pair.host("first"))
        assert (await trip.ask("Capital?")).text == "You said: Capital?"
        async with asyncio.timeout(WAIT_S):
            async for event in events:
                if isinstance(event, antiphon.HostChanged):
                    break
        assert event.hosts == (pair.key("first"),)
