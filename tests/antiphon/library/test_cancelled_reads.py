"""Reads that are cancelled, as by a timeout: the next one goes on where they were."""

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import antiphon
from antiphon import aio
from antiphon.library.io import run_claim
from antiphon.library.io.steps import Items
from replica.errors import ReplicaClosed
from tests.antiphon.library.conftest import Lab
from tests.antiphon.library.test_run_news import LONG, WHOLE, Gate, Shown, reply


@pytest.fixture
async def one_form(tmp_path: Path) -> AsyncIterator[Lab]:
    """A hub without a host, for the async form."""
    lab = Lab(tmp_path, "async")
    async with lab.stack:
        await lab.start_hub()
        yield lab


async def cancelled(reading: "asyncio.Task[Any]") -> None:
    """Cancel a read that waits."""
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading


async def cancelled_read(events: Items[antiphon.Event]) -> None:
    await cancelled(asyncio.ensure_future(anext(events)))


def act(function: Callable[..., Any]) -> antiphon.Tool:
    return antiphon.tool(name="act", effect=True, description="Act.")(function)


Opened = Callable[[aio.Replica, aio.Conversation], Items[antiphon.Event]]


@pytest.mark.parametrize("of", [lambda me, _notes: me.events(), lambda _me, notes: notes.events()])
async def test_events_go_on_behind_a_cancelled_wait(tmp_path: Path, of: Opened):
    async with aio.open(tmp_path) as me:
        notes = await me.conversation("notes")
        events = of(me, notes)
        for text in ("One.", "Two.", "Three."):
            await cancelled_read(events)
            await notes.say(text)
            async with asyncio.timeout(20):
                while not isinstance(event := await anext(events), antiphon.Said):
                    pass
            assert event.text == text
        reading = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
    with pytest.raises(ReplicaClosed):
        await reading
    assert await anext(events, None) is None


async def test_who_waits_for_events_that_are_closed_leaves_its_loop(tmp_path: Path):
    async with aio.open(tmp_path) as me:
        events = me.events()

        async def read() -> list[antiphon.Event]:
            return [event async for event in events]

        reading = [asyncio.create_task(read()) for _ in range(2)]
        await asyncio.sleep(0)
        await events.aclose()
        assert await asyncio.gather(*reading) == [[], []]


async def test_a_run_goes_on_behind_cancelled_reads(one_form: Lab):
    gate = Gate()
    await one_form.start_host(reply, gate.pace)
    async with one_form.open() as me:
        trip = await me.conversation("trip")
        run, shown = trip.run("Who?"), Shown()
        events = aiter(run)
        while True:
            if gate.reached.is_set():
                gate.open()
            reading = asyncio.ensure_future(anext(events, None))
            await asyncio.sleep(0)
            reading.cancel()
            found = await asyncio.gather(reading, return_exceptions=True)
            if found == [None]:
                break
            if not isinstance(found[0], BaseException):
                shown.events.append(found[0])
        assert shown.kinds() == WHOLE
        assert run.answer.text == f"Who? {LONG}"


async def test_a_plain_tool_ends_before_the_read_that_was_cancelled(one_form: Lab):
    began, go_on, acted = asyncio.Event(), threading.Event(), list[str]()
    loop = asyncio.get_running_loop()

    def work() -> str:
        loop.call_soon_threadsafe(began.set)
        go_on.wait()
        acted.append("done")
        return "done"

    await one_form.start_host(reply)
    async with one_form.open() as me:
        trip = await me.conversation("trip")
        events = aiter(trip.run("Act.", tools=[act(work)], key="job-17"))
        while not isinstance(await anext(events), antiphon.ToolStarted):
            pass
        reading = asyncio.ensure_future(anext(events))
        await began.wait()
        reading.cancel()
        await trip.say("Durable behind the end of a read that does not wait for its tool.")
        assert not reading.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert await trip.open_calls() == ()
        kinds = [type(event).__name__ async for event in events]
        assert (kinds[0], kinds[-1], acted) == ("ToolDone", "Answered", ["done"])


async def test_an_async_tool_goes_on_behind_a_cancelled_read(one_form: Lab):
    began, go_on = asyncio.Event(), asyncio.Event()

    async def work() -> str:
        assert not began.is_set(), "it is run once"
        began.set()
        await go_on.wait()
        return "done"

    await one_form.start_host(reply)
    async with one_form.open() as me:
        trip = await me.conversation("trip")
        events = aiter(trip.run("Act.", tools=[act(work)], key="job-17"))
        while not isinstance(await anext(events), antiphon.ToolStarted):
            pass
        reading = asyncio.ensure_future(anext(events))
        await began.wait()
        await cancelled(reading)
        go_on.set()
        kinds = [type(event).__name__ async for event in events]
        assert (kinds[0], kinds[-1]) == ("ToolDone", "Answered")


async def left_before_its_tool(trip: Any, run: Any, gate: Gate) -> Items[antiphon.Event]:
    """Read a run up to its text, and be cancelled; return once the call is in the log."""
    events, news, text = aiter(run), trip.events(), ""
    while text != "Calling act now, then":
        event = await anext(events)
        text += event.text if isinstance(event, antiphon.Draft) else ""
    await cancelled_read(events)
    gate.open()
    async for event in news:
        if isinstance(event, antiphon.Answered):
            break
    return events


async def test_no_tool_is_begun_between_two_reads(one_form: Lab):
    gate, acted = Gate(), list[str]()
    await one_form.start_host(reply, gate.pace)
    async with one_form.open() as me:
        trip = await me.conversation("trip")
        run = trip.run("Act.", tools=[act(lambda: acted.append("done"))], key="job-17")
        events = await left_before_its_tool(trip, run, gate)
        await trip.say("Durable behind the start of a tool that waits for no reader.")
        assert (acted, len(await trip.open_calls())) == ([], 1)
        assert [type(event).__name__ async for event in events][-1] == "Answered"
        assert acted == ["done"]


async def test_a_run_that_nobody_waits_for_before_its_tool_lets_another_go_on(
    one_form: Lab, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(run_claim, "UNREAD_S", 0.05)
    gate, acted = Gate(), list[str]()
    tools = [act(lambda: acted.append("done"))]
    await one_form.start_host(reply, gate.pace)
    async with one_form.open() as me:
        trip = await me.conversation("trip")
        run = trip.run("Act.", tools=tools, key="job-17")
        events = await left_before_its_tool(trip, run, gate)
        answer = await trip.ask("Act.", tools=tools, key="job-17", timeout_s=20.0)
        assert [type(event).__name__ async for event in events][-1] == "Answered"
        assert (run.answer, acted) == (answer, ["done"])


async def drop(run: Any) -> None:
    async for _ in run:
        pass


async def drop_behind_a_timeout(run: Any) -> None:
    async with asyncio.timeout(None) as limit:
        async for event in run:
            if isinstance(event, antiphon.Draft):
                limit.reschedule(0)


@pytest.mark.parametrize("left", [drop, drop_behind_a_timeout])
async def test_a_loop_that_is_cancelled_closes_its_run(
    one_form: Lab, left: Callable[[Any], Awaitable[None]]
):
    """Another run under its key need not wait until it is given up as unread."""
    gate = Gate()
    await one_form.start_host(reply, gate.pace)
    async with one_form.open() as me:
        trip = await me.conversation("trip")
        reading = asyncio.ensure_future(left(trip.run("Who?", key="job-17")))
        await gate.reached.wait()
        if left is drop:
            reading.cancel()
        gc.disable()  # the loop itself lets go of the run
        try:
            with pytest.raises(asyncio.CancelledError if left is drop else TimeoutError):
                await reading
            shown, run = Shown(), trip.run("Who?", key="job-17", timeout_s=20.0)
            second = asyncio.create_task(shown.read(run))
            await shown.has_text.wait()
            gate.open()
            await second
        finally:
            gc.enable()
        assert shown.kinds()[-2:] == ["Draft", "Answered"]
