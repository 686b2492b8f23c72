"""Calls in the wrong event loop: each is refused before it touches the replica."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import antiphon
from antiphon import aio
from antiphon.library.errors import LoopUnsuitable, ReplicaClosed
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
    "cancel": lambda _me, trip: trip.cancel(),
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


async def test_what_one_loop_reads_is_not_read_or_closed_in_another(tmp_path: Path):
    """The reader in the replica's own loop goes on, and the run and the iterator after it."""
    lab, go_on = Lab(tmp_path, "async"), asyncio.Event()

    async def pace(piece: int) -> None:
        await go_on.wait() if piece else None

    async with lab.stack:
        await lab.start_hub()
        await lab.start_host(pace=pace)
        async with lab.open() as me, asyncio.timeout(30):
            trip = await me.conversation("trip")
            run, events = trip.run("One two three four."), me.events()
            reading = asyncio.ensure_future(read(run))
            heard = asyncio.ensure_future(anext(events))

            async def there(call: Callable[[], Awaitable[Any]]) -> Any:
                async with asyncio.timeout(5):
                    return await call()

            await asyncio.sleep(0)
            for call in (
                lambda: read(run), run.result, run.close, aiter(run).aclose,
                lambda: anext(events), events.aclose,
            ):  # fmt: skip
                with pytest.raises(LoopUnsuitable, match="another event loop"):
                    await asyncio.to_thread(asyncio.run, there(call))
            go_on.set()
            await heard
            await reading
            assert run.answer.text == "You said: One two three four."
            await events.aclose()
        for late in (lambda: anext(events), run.result):
            with pytest.raises(ReplicaClosed):
                await asyncio.to_thread(asyncio.run, there(late))
        for close in (events.aclose, run.close):
            await asyncio.to_thread(asyncio.run, there(close))


async def test_the_async_form_is_left_in_the_loop_that_entered_it(tmp_path: Path):
    opening = aio.open(tmp_path)
    me = await opening.__aenter__()

    async def leave() -> None:
        await opening.__aexit__(None, None, None)

    with pytest.raises(LoopUnsuitable, match="another event loop"):
        await asyncio.to_thread(asyncio.run, leave())
    assert await me.conversations() == ()  # it is open
    await leave()
    with pytest.raises(ReplicaClosed):
        await me.conversations()


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
