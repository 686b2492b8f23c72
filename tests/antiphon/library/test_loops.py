"""Calls in the wrong event loop: each is refused before it touches the replica."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import antiphon
from antiphon import aio
from antiphon.library.errors import LoopUnsuitable
from antiphon.library.io.portal import Blocking
from tests.antiphon.library.conftest import Lab


async def read(events: AsyncIterator[Any]) -> None:
    async for _ in events:
        pass


CALLS: dict[str, Callable[[aio.Replica, aio.Conversation], Awaitable[Any]]] = {
    "ask": lambda _me, trip: trip.ask("Who?"),
    "run": lambda _me, trip: read(trip.run("Who?")),
    "say": lambda _me, trip: trip.say("Hello."),
    "events": lambda _me, trip: read(trip.events()),
    "history": lambda _me, trip: trip.history(),
    "rename": lambda _me, trip: trip.rename("a name"),
    "invite": lambda _me, trip: trip.invite("bob"),
    "conversation": lambda me, _trip: me.conversation("another"),
    "get": lambda me, trip: me.get(trip.id),
    "sync": lambda me, _trip: me.sync(),
}


async def test_the_async_form_is_refused_in_another_loop(tmp_path: Path):
    lab = Lab(tmp_path, "async")
    async with lab.stack:
        await lab.start_hub()
        await lab.start_host()
        async with lab.open() as me:
            trip = await me.conversation("trip")
            begun, listening = trip.run("Begun here."), trip.events()

            async def there(call: Callable[[aio.Replica, aio.Conversation], Awaitable[Any]]) -> Any:
                return await call(me, trip)

            for name, call in CALLS.items():
                with pytest.raises(LoopUnsuitable, match="another event loop"):
                    await asyncio.to_thread(asyncio.run, there(call))
                    pytest.fail(f"{name} was made")
            for events in (begun, listening):
                with pytest.raises(LoopUnsuitable):
                    await asyncio.to_thread(asyncio.run, read(events))
            with pytest.raises(LoopUnsuitable):
                await asyncio.to_thread(trip.run, "Who?")  # no loop at all
            assert (await trip.ask("Still here?")).text == "You said: Still here?"
            assert len(await me.conversations()) == 1


async def test_the_blocking_form_is_refused_in_its_own_loop(tmp_path: Path):
    """An async tool or policy would wait for itself; the error names what to use."""
    lab = Lab(tmp_path, "blocking")
    async with lab.stack:
        await lab.start_hub()
        await lab.start_host()
        async with lab.open() as opened:
            me: antiphon.Replica = opened.inner
            trip = await asyncio.to_thread(me.conversation, "trip")

            async def decide(_answer: antiphon.Answer) -> antiphon.Call | None:
                return antiphon.Call("", trip.title() or "")

            with pytest.raises(LoopUnsuitable, match="the loop that this call waits for"):
                await asyncio.to_thread(trip.ask, "Who?", policy=decide)
            assert isinstance(trip.at(trip.id), Blocking)  # this loop is not the replica's
