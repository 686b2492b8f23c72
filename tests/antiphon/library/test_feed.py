"""What a feed remembers between events: what goes on, and no more."""

from pathlib import Path

import pytest

import antiphon
from antiphon import aio
from antiphon.library import events as e
from antiphon.library.io import feed
from antiphon.library.io.feed import Feed
from tests.antiphon.library.conftest import Lab


async def test_a_feed_forgets_runs_that_have_ended_and_conversations_that_are_gone(
    tmp_path: Path,
) -> None:
    lab = Lab(tmp_path, "async")
    async with lab.stack:
        await lab.start_hub()
        await lab.start_host()
        async with lab.open() as me:
            core, trip = me._core, await me.conversation("trip")
            feed = Feed(core)
            for question in ("One?", "Two?"):
                await trip.ask(question)
            found = feed.collected()
            assert sum(isinstance(event, e.Draft) for event in found) > 1
            assert not any(feed._runs.values())
            assert not feed._lost
            await core.delete(trip.id)
            assert trip.id not in feed._runs


async def test_an_unread_answer_displaces_no_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "QUEUED_MAX", 20)
    lab = Lab(tmp_path, "async")
    async with lab.stack:
        await lab.start_hub()
        await lab.start_host()
        async with lab.open() as me:
            trip = await me.conversation("trip")
            assert await trip.sync()
            events = trip.events()
            await trip.say("To be heard.")
            answer = await trip.ask(" ".join(str(number) for number in range(50)))
            said, drafted = [], ""
            async for event in events:
                match event:
                    case e.Said(_, text):
                        said.append(text)
                    case e.Draft(text):
                        drafted += text
                    case e.Answered():
                        break
                    case _:
                        pass
            assert said[0] == "To be heard."
            assert drafted == answer.text


async def test_words_that_were_dropped_unread_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "QUEUED_MAX", 4)
    async with aio.open(tmp_path) as me:
        notes = await me.conversation("notes")
        events, idle = notes.events(), me.events()
        for number in range(4):
            await notes.say(str(number))
        assert [(await anext(events)).text for _ in range(4)] == ["0", "1", "2", "3"]
        for number in range(5):
            await notes.say(str(number))
        for late in (events, idle):
            with pytest.raises(antiphon.EventsMissed, match="events were dropped unread"):
                await anext(late)
        assert len(await notes.history()) == 9
