"""A run shows its own turns alone, each answer in order, whoever works on it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import antiphon
from antiphon.library import events as e
from antiphon.library.io import run_claim
from antiphon.library.io.run_news import RunNews
from replica.conversation import KeyedRun
from replica.ids import EntryId
from tests.antiphon.library.conftest import Lab
from tests.support.files import write_locked
from tests.support.scripted_host import Asked, Token, ToolCall, scripted_host, words

FORMS = ["blocking"]

LONG = "One two three four five six seven eight."


class Gate:
    """Stops each answer before its fifth token, until it is opened."""

    def __init__(self) -> None:
        self.reached, self._open = asyncio.Event(), asyncio.Event()

    async def pace(self, index: int) -> None:
        if index == 4:
            self.reached.set()
            await self._open.wait()

    def open(self) -> None:
        self._open.set()


class Shown:
    """What a program shows of a run that it streams."""

    def __init__(self) -> None:
        self.text = ""
        self.events: list[e.Event] = []
        self.has_text = asyncio.Event()

    async def read(self, run: Any, *, until: str | None = None) -> "Shown":
        """Read a run to its end, or until so much of an answer is shown."""
        async for event in run:
            self.events.append(event)
            match event:
                case e.Draft(text):
                    self.text += text
                    self.has_text.set()
                case e.Discarded():
                    self.text = ""
                case e.Answered(answer):
                    assert self.text == answer.text
                    self.text = ""
                case _:
                    pass
            if until is not None and until in self.text:
                break
        return self

    def kinds(self) -> list[str]:
        """Return the kinds of the events, with the drafts of one answer as one."""
        found: list[str] = []
        for event in self.events:
            kind = type(event).__name__
            if not (found and found[-1] == kind == "Draft"):
                found.append(kind)
        return found

    def requests(self) -> set[EntryId]:
        """Return the requests that the events are about."""
        return {e.request for e in self.events if isinstance(e, antiphon.Draft | antiphon.Sealed)}


def reply(asked: Asked) -> list[Token | ToolCall]:
    """Call the tool `act` first where it is asked to."""
    if asked.said == "Act.":
        return [*words("Calling act now, then the rest."), ToolCall("1", "act", "{}")]
    return list(words(f"{asked.said} {LONG}"))


WHOLE = ["Said", "Asked", "Sealed", "Draft", "Answered"]


async def test_a_run_shows_nothing_of_what_others_ask_beside_it(lab: Lab):
    gate = Gate()
    await lab.start_host(reply, gate.pace)
    async with lab.shared() as (bob, mine, theirs):
        first = asyncio.create_task(Shown().read(mine.run("First?")))
        await gate.reached.wait()
        news = mine.events()
        others = [
            asyncio.create_task(Shown().read(one.run(text)))
            for one, text in ((theirs, "Second?"), (await bob.get(mine.id), "Third?"))
        ]
        async for event in news:  # both wait in the queue
            if isinstance(event, antiphon.Said) and event.text in ("Second?", "Third?"):
                gate.open()
                break
        shown = await asyncio.gather(first, *others)
        assert [one.kinds() for one in shown] == [WHOLE] * 3
        assert all(len(one.requests()) == 1 for one in shown)
        said = [event.text for one in shown for event in one.events if isinstance(event, e.Said)]
        assert said == ["First?", "Second?", "Third?"]


async def test_who_follows_a_run_sees_its_answer_from_the_beginning(lab: Lab):
    gate = Gate()
    await lab.start_host(reply, gate.pace)
    async with lab.open() as me:
        trip = await me.conversation("trip")
        leader, follower = Shown(), Shown()
        first = asyncio.create_task(leader.read(trip.run("Who?", key="job-17")))
        await leader.has_text.wait()
        second = asyncio.create_task(follower.read(trip.run("Who?", key="job-17")))
        await follower.has_text.wait()
        gate.open()
        assert (await first).kinds() == WHOLE
        assert (await second).kinds() == ["Draft", "Answered"]


async def test_who_takes_a_run_over_goes_on_where_it_was_shown(lab: Lab):
    gate = Gate()
    await lab.start_host(reply, gate.pace)
    async with lab.open() as me:
        trip = await me.conversation("trip")
        run = trip.run("Who?", key="job-17")
        shown = Shown()
        leader = aiter(run)
        while not isinstance(await anext(leader), antiphon.Draft):
            pass  # and nobody reads on
        second = asyncio.create_task(shown.read(trip.run("Who?", key="job-17")))
        await shown.has_text.wait()
        before = shown.text
        await run.close()
        gate.open()
        assert (await second).kinds()[-2:] == ["Draft", "Answered"]
        assert before
        assert not any(isinstance(event, e.Discarded | e.Said) for event in shown.events)


async def test_who_follows_a_run_with_tools_sees_each_turn_of_it(lab: Lab):
    gate = Gate()
    await lab.start_host(reply, gate.pace)
    act = antiphon.tool(name="act", description="Act.")(lambda: "done")
    async with lab.open() as me:
        trip = await me.conversation("trip")
        readers, reading = [Shown() for _ in range(3)], []
        for one in readers:
            run = trip.run("Act.", key="job-17", tools=[act])
            reading.append(asyncio.create_task(one.read(run)))
            await one.has_text.wait()
        gate.open()
        await asyncio.gather(*reading)
        assert readers[0].kinds()[:3] == ["Said", "Asked", "Sealed"]
        turns = ["Draft", "ToolCalled", "Answered", "ToolDone", "Asked", "Sealed", "Draft"]
        for kinds in (readers[0].kinds()[3:], *(one.kinds() for one in readers[1:])):
            assert kinds == [*turns, "Answered"]


async def test_a_run_that_lost_its_key_shows_what_another_did_once(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(run_claim, "UNREAD_S", 0.05)
    gate = Gate()
    await lab.start_host(reply, gate.pace)
    async with lab.open() as me:
        trip = await me.conversation("trip")
        shown, run = Shown(), trip.run("Who?", key="job-17")
        events = aiter(run)
        while not isinstance(event := await anext(events), antiphon.Draft):
            shown.events.append(event)  # and nobody reads on
        shown.events.append(event)
        shown.text = event.text
        gate.open()
        answer = await trip.ask("Who?", key="job-17")
        await shown.read(run)
        assert shown.kinds() == WHOLE
        assert run.answer == answer


async def test_a_run_that_has_ended_shows_nothing(lab: Lab):
    await lab.start_host(reply)
    async with lab.open() as me:
        trip = await me.conversation("trip")
        answer = await trip.ask("Who?", key="job-17")
        run = trip.run("Who?", key="job-17")
        assert [event async for event in run] == []
        assert run.answer == answer


async def test_a_run_shows_a_draft_behind_its_sealed_though_it_is_in_memory_before(tmp_path: Path):
    lab = Lab(tmp_path, "async")
    async with lab.stack:
        hub = await lab.start_hub()
        async with scripted_host(tmp_path / "host", hub.address):
            me = await lab.stack.enter_async_context(lab.open())
            trip = await me.conversation("trip")
            await trip.ask("Where to?")
        events = aiter(trip.run("And then?"))
        while not isinstance(asked := await anext(events), antiphon.Asked):
            pass
        held = me._core.shelf[trip.id]
        has_begun = asyncio.Event()

        async def until_unlocked(index: int) -> None:
            if index > 0:
                await has_begun.wait()

        async with write_locked(me._core.store.holding.own):
            await lab.start_host(pace=until_unlocked)
            following = asyncio.ensure_future(anext(events))
            # No event tells of the draft and the seal, which are in memory and not durable.
            while asked.entry not in held.drafts or asked.entry not in held.order.seal_of:  # noqa: ASYNC110
                await asyncio.sleep(0)
            has_begun.set()
        shown = [await following, *[event async for event in events]]
        kinds = [k for k in (type(one).__name__ for one in shown) if k in ORDERED]
        assert kinds == ["Sealed", *["Draft"] * kinds.count("Draft"), "Answered"]
        assert (
            "".join(one.text for one in shown if isinstance(one, e.Draft)) == "You said: And then?"
        )


async def test_the_end_of_an_answer_is_shown_once_though_its_entry_is_durable_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    lab = Lab(tmp_path, "async")
    async with lab.stack:
        await lab.start_hub()
        await lab.start_host(reply)
        me = await lab.stack.enter_async_context(lab.open())
        answer = await (trip := await me.conversation("trip")).ask("Who?")
        run, news = KeyedRun(None, (answer.request,)), RunNews(me._core, trip.id)
        new_entries = news._new_entries

        async def without_answer(run: KeyedRun) -> list[EntryId]:
            return [at for at in await new_entries(run) if at != answer.entry]

        monkeypatch.setattr(news, "_new_entries", without_answer)
        shown = [event async for event in news.collected(run)]
        monkeypatch.undo()
        shown += [event async for event in news.collected(run)]
        assert [type(one).__name__ for one in shown] == ["Asked", "Sealed", "Draft", "Answered"]
        news.stop()


ORDERED = {"Sealed", "Draft", "Discarded", "Answered"}
