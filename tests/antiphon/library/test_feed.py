"""What a feed remembers between events: what goes on, and no more."""

import asyncio
import gc
from collections.abc import AsyncIterator
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


async def test_the_events_of_a_conversation_are_of_no_other(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "async")
    async with lab.stack:
        await lab.start_hub()
        await lab.start_host()
        async with lab.open() as me:
            trip, other = await me.conversation("trip"), await me.conversation("other")
            one, every = Feed(me._core, trip.id), Feed(me._core)
            answer = await other.ask("One?")
            await me._core.flush()
            drafted = [event for event in every.collected() if isinstance(event, e.Draft)]
            assert "".join(event.text for event in drafted) == answer.text
            assert one.collected() == []


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


async def test_the_end_of_an_async_with_over_events_ends_them(tmp_path: Path) -> None:
    async with aio.open(tmp_path) as me:
        notes = await me.conversation("notes")
        async with me.events() as everything, notes.events() as events:
            await notes.say("One.")
            for one in (everything, events):
                assert isinstance(await anext(one), e.Said)
            waiting = asyncio.ensure_future(anext(events, None))
            await asyncio.sleep(0)
        assert await waiting is None
        assert await anext(everything, None) is None


async def test_what_was_kept_for_a_slow_reader_comes_before_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "QUEUED_MAX", 4)
    async with aio.open(tmp_path) as me:
        notes = await me.conversation("notes")
        events, idle = notes.events(), me.events()
        for number in range(4):
            await notes.say(str(number))
        assert [(await anext(events)).text for _ in range(4)] == ["0", "1", "2", "3"]
        for number in range(4, 9):
            await notes.say(str(number))
        for late, kept in ((events, ["4", "5", "6", "7"]), (idle, ["0", "1", "2", "3"])):
            assert [(await anext(late)).text for _ in range(4)] == kept
            with pytest.raises(antiphon.EventsMissed, match="4 events waited unread"):
                await anext(late)
            assert await anext(late, None) is None
        assert len(await notes.history()) == 9


async def test_a_follower_whose_task_nobody_keeps_hears_everything(tmp_path: Path) -> None:
    async with aio.open(tmp_path) as me:
        notes, heard = await me.conversation("notes"), asyncio.Queue[str]()

        async def follow(events: AsyncIterator[e.Event]) -> None:
            async for event in events:
                if isinstance(event, e.Said):
                    heard.put_nowait(event.text)

        for events in (notes.events(), me.events()):
            asyncio.create_task(follow(events))  # noqa: RUF006  # nobody keeps it
        del events
        for number in range(3):
            await asyncio.sleep(0)
            gc.collect()  # it would take the task that waits, and the iterator with it
            await notes.say(str(number))
            async with asyncio.timeout(10):
                assert [await heard.get(), await heard.get()] == [str(number)] * 2


async def test_an_iterator_that_nobody_reads_any_more_collects_nothing(tmp_path: Path) -> None:
    async with aio.open(tmp_path) as me:
        notes = await me.conversation("notes")

        def feeds() -> int:
            return sum(isinstance(one, feed._Listener) for one in me._core._listeners)

        unbegun, begun, waiting = notes.events(), notes.events(), notes.events()
        await notes.say("One.")
        assert isinstance(await anext(begun), e.Said)
        assert isinstance(await anext(waiting), e.Said)
        task = asyncio.ensure_future(anext(waiting))
        await asyncio.sleep(0)
        assert feeds() == 3
        del unbegun, begun
        gc.collect()
        await asyncio.sleep(0)  # Python closes the one that was begun in a task of its own
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        del task, waiting
        await asyncio.sleep(0)  # asyncio keeps the error, which refers to both, for this turn
        gc.collect()
        assert feeds() == 0
