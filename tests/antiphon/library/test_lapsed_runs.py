"""A run that another one goes on with while nobody reads it: what its reader sees behind that."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import antiphon
from antiphon.library.io import run_claim
from antiphon.library.io.run_news import RunNews
from replica.conversation import KeyedRun, entries_of
from replica.ids import EntryId
from replica.log import Kind
from tests.antiphon.library.conftest import Lab
from tests.antiphon.library.test_run_news import LONG, Shown
from tests.support.scripted_host import Asked, Token, ToolCall, words

FORMS = ["blocking"]


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    """The async form: its tools run in the loop of the test, which tells them to go on."""
    made = Lab(tmp_path, "async")
    async with made.stack:
        await made.start_hub()
        yield made


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_claim, "UNREAD_S", 0.05)


def reply(asked: Asked) -> Sequence[Token | ToolCall]:
    """Call the tool `act` twice first where it is asked to."""
    if asked.said == "Act.":
        calls = [ToolCall(number, "act", "{}") for number in "12"]
        return [*words("Calling act now, then the rest."), *calls]
    return list(words(f"{asked.said} {LONG}"))


class Tool:
    """A tool that waits until it is let go on."""

    def __init__(self) -> None:
        self.began, self.goes_on = asyncio.Event(), asyncio.Event()

        @antiphon.tool(name="act")
        async def act() -> str:
            """Act."""
            self.began.set()
            await self.goes_on.wait()
            return "done"

        self.tool = act


async def test_what_was_not_read_comes_in_its_order_and_once(lab: Lab):
    await lab.start_host(reply)
    act, shown = Tool(), Shown()
    async with lab.open() as me:
        run, again = [
            (await me.conversation("trip")).run("Act.", tools=[act.tool], key="job-17")
            for _ in range(2)
        ]
        events = aiter(run)
        async for event in events:
            shown.events.append(event)
            if isinstance(event, antiphon.ToolCalled):
                other = asyncio.create_task(again.result())
                await act.began.wait()  # the other run has the key
                act.goes_on.set()
                break
        async for event in events:
            shown.events.append(event)
        await other
    kinds = [kind for kind in shown.kinds() if kind != "Draft"]
    turn = ["ToolCalled", "ToolCalled", "Answered", "ToolDone", "ToolDone"]
    assert kinds == ["Said", "Asked", "Sealed", *turn, "Asked", "Sealed", "Answered"]


async def acted(me: Any) -> tuple[Any, list[EntryId]]:
    """Run the tool in a conversation; return that, and the two requests of the run."""
    act = Tool()
    act.goes_on.set()
    trip = await me.conversation("trip")
    await trip.ask("Act.", tools=[act.tool], key="job-17")
    entries = me._core.shelf[trip.id].log.entries.values()
    return trip, [entry.id for entry in entries if entry.header.kind == Kind.REQUEST]


async def test_a_run_may_lapse_between_any_two_events(lab: Lab):
    """What another run did comes behind."""
    await lab.start_host(reply)
    async with lab.open() as me:
        trip, requests = await acted(me)
        whole, half = KeyedRun(None, tuple(requests)), KeyedRun(None, tuple(requests[:1]))
        for count in range(8):
            news = RunNews(me._core, trip.id)
            first, kinds = news.collected(half), list[str]()
            for _ in range(count):
                kinds.append(type(await anext(first)).__name__)
            kinds += [type(event).__name__ async for event in news.collected(whole)]
            kinds += [type(event).__name__ async for event in first]
            news.stop()
            turn = ["Draft", "ToolCalled", "ToolCalled", "Answered", "ToolDone", "ToolDone"]
            assert kinds == ["Asked", "Sealed", *turn, "Asked", "Sealed", "Draft", "Answered"]


async def test_a_call_is_told_before_its_tool_where_its_event_comes_later(lab: Lab):
    """The log has an entry at once, its event comes when it is durable: the tool ran first."""
    await lab.start_host(reply)
    async with lab.open() as me:
        trip, (first, _) = await acted(me)
        held = me._core.shelf[trip.id]
        news = RunNews(me._core, trip.id)
        news.stop()  # no event comes
        run = KeyedRun(None, (first,))
        answer = held.order.generation_of(first)
        behind = entries_of(held, run)[2:]
        assert behind[0] == answer
        news._shown.update(behind)  # they are not there yet
        assert len([event async for event in news.collected(run)]) == 2
        news._shown.difference_update(behind)
        kinds = [type(event).__name__ async for event in news.collected(run)]
        assert kinds[:2] == ["Draft", "ToolCalled"]


async def test_an_answer_that_the_other_run_left_is_shown_once(lab: Lab):
    await lab.start_host(reply)
    act = Tool()
    act.goes_on.set()
    async with lab.open() as me:
        run, again = [
            (await me.conversation("trip")).run("Act.", tools=[act.tool], key="job-17")
            for _ in range(2)
        ]
        texts = dict[bytes, str]()
        async for event in run:
            if isinstance(event, antiphon.Draft):
                if not texts:
                    await left_in_its_second_answer(again, event.request)
                texts[event.request] = texts.get(event.request, "") + event.text
            elif isinstance(event, antiphon.Discarded):
                texts[event.request] = ""
            elif isinstance(event, antiphon.Answered):
                assert texts[event.answer.request] == event.answer.text
    assert len(texts) == 2


async def left_in_its_second_answer(run: Any, first: bytes) -> None:
    """Read a run until it shows the answer to another request, and leave it."""
    async for event in run:
        if isinstance(event, antiphon.Draft) and event.request != first:
            break


async def test_a_tool_that_waits_for_its_own_run_is_told(lab: Lab):
    """It waited for ever."""
    await lab.start_host(reply)
    errors: list[antiphon.AntiphonError] = []
    async with lab.open() as me:
        trip = await me.conversation("trip")

        @antiphon.tool(name="act")
        async def act() -> str:
            """Act."""
            for waits in (run.result, lambda: trip.ask("Act.", tools=[act], key="job-17")):
                with pytest.raises(antiphon.AntiphonError) as raised:
                    await waits()
                errors.append(raised.value)
            return "done"

        run = trip.run("Act.", tools=[act], key="job-17")
        answer = await run.result()
    assert answer.text.startswith("done")
    assert [type(error) for error in errors] == [antiphon.RunUnfinished, antiphon.CallOpen] * 2


async def test_a_tool_that_closed_its_own_call_does_not_wait_for_its_run(lab: Lab):
    """It waited for ever: no call was open that it could be told of."""
    await lab.start_host(reply)
    errors: list[antiphon.AntiphonError] = []
    async with lab.open() as me:
        trip = await me.conversation("trip")

        @antiphon.tool(name="act")
        async def act() -> str:
            """Act."""
            for call in await trip.open_calls():
                await trip.finish(call.id, "done by hand")
            with pytest.raises(antiphon.RunUnfinished, match="under the same key") as raised:
                await trip.ask("Act.", tools=[act], key="job-17")
            errors.append(raised.value)
            return "done"

        async with asyncio.timeout(20.0):
            answer = await trip.ask("Act.", tools=[act], key="job-17")
    assert answer.text.startswith("done by hand")
    assert [error.next_step for error in errors] == [
        "Return from the tool: whoever reads the run gets its events."
    ]


async def test_a_task_that_a_tool_left_behind_may_wait_for_its_run(lab: Lab):
    await lab.start_host(reply)
    left: list[asyncio.Task[antiphon.Answer]] = []
    async with lab.open() as me:
        trip = await me.conversation("trip")
        read = asyncio.Event()

        async def ask() -> antiphon.Answer:
            await read.wait()
            answer: antiphon.Answer = await trip.ask("Act.", tools=[act], key="job-17")
            return answer

        @antiphon.tool(name="act")
        async def act() -> str:
            """Act."""
            left.append(asyncio.create_task(ask()))
            return "done"

        async for event in (run := trip.run("Act.", tools=[act], key="job-17")):
            if isinstance(event, antiphon.Sealed) and left:
                read.set()
        assert [(await one).entry for one in left] == [run.answer.entry] * 2


async def test_a_tool_is_cancelled_where_its_replica_closes_unread(lab: Lab):
    """It went on behind the replica, its effect happened, and its result was lost."""
    ends = list[str]()
    began = asyncio.Event()

    @antiphon.tool(name="act", effect=True)
    async def act() -> str:
        """Act."""
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise
        return "never"

    await lab.start_host(reply)
    async with lab.open() as me:
        events = aiter((await me.conversation("trip")).run("Act.", tools=[act], key="job-17"))
        while not began.is_set():
            reading = asyncio.ensure_future(anext(events))
            starting = asyncio.ensure_future(began.wait())
            await asyncio.wait({reading, starting}, return_when=asyncio.FIRST_COMPLETED)
            for waiting in (reading, starting):
                waiting.cancel()
            await asyncio.wait({reading, starting})
    assert ends == ["cancelled"]
    with pytest.raises(antiphon.ReplicaClosed):
        await anext(events)
