"""Both forms behind the end of the `with` that opened their replica."""

import asyncio
import gc
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import antiphon
from antiphon import aio
from antiphon.library.errors import ReplicaClosed
from antiphon.library.io.portal import Iteration, Portal
from antiphon.library.io.steps import Steps
from replica.conversation import Stored
from replica.io.driver import processes
from replica.io.files.claims import Claims
from replica.refusals import StoreLocked


def test_a_call_behind_the_end_says_that_the_replica_is_closed(tmp_path: Path):
    with antiphon.open(tmp_path) as me:
        notes = me.conversation("notes")
    with pytest.raises(ReplicaClosed):
        notes.say("Too late.")


async def test_the_async_form_says_so_too(tmp_path: Path):
    async with aio.open(tmp_path, host="ab" * 32) as me:
        notes = await me.conversation("notes")
        run, entry = notes.run("Too late."), await notes.say("In time.")
    calls = (
        notes.say("Too late."), notes.ask("Too late."), run.result(), notes.history(),
        notes.rename("late"), notes.cancel(entry), notes.sync(), notes.branches(),
        me.conversation("late"), me.get(notes.id), me.conversations(), me.sync(),
    )  # fmt: skip
    for call in calls:
        with pytest.raises(ReplicaClosed):
            await call
    for method in (notes.events, lambda: notes.at(entry), me.events):
        with pytest.raises(ReplicaClosed):
            method()
    assert (len(me.key), me.is_linked) == (32, False)


async def test_the_async_form_ends_the_calls_of_other_tasks(tmp_path: Path):
    async def read(events: AsyncIterator[antiphon.Event]) -> None:
        async for _ in events:
            pass

    async with aio.open(tmp_path, host="ab" * 32) as me:
        notes = await me.conversation("notes")
        tasks = [
            asyncio.create_task(read(notes.events())),
            asyncio.create_task(read(me.events())),
            asyncio.create_task(notes.ask("Anyone?")),
        ]
        while not await notes.history():  # noqa: ASYNC110  # until the question is in the log
            await asyncio.sleep(0)
    async with asyncio.timeout(5):
        for task in tasks:
            with pytest.raises(ReplicaClosed):
                await task


@pytest.mark.parametrize("who", ["replica", "conversation"])
async def test_who_waits_for_the_hub_hears_that_the_replica_is_closed(tmp_path: Path, who: str):
    async with aio.open(tmp_path, hub="127.0.0.1:1") as me:
        notes = await me.conversation("notes")
        waiting = asyncio.create_task((me if who == "replica" else notes).sync(60.0))
        await asyncio.sleep(0)
    async with asyncio.timeout(5):
        with pytest.raises(ReplicaClosed):
            await waiting


@pytest.mark.parametrize("call", ["conversation", "conversations", "sync"])
async def test_a_call_that_is_cut_off_at_any_await_says_so(tmp_path: Path, call: str):
    """The store and the performer end in turn, each while calls are in progress."""
    async with aio.open(tmp_path) as me:
        await me.conversation("notes")
    for turns in range(30):
        async with aio.open(tmp_path, hub="127.0.0.1:1") as me:
            made = me.conversation("late") if call == "conversation" else getattr(me, call)()
            waiting = asyncio.create_task(made)
            for _ in range(turns):
                await asyncio.sleep(0)
        async with asyncio.timeout(5):
            with suppress(ReplicaClosed):  # any other error fails the test
                assert await waiting


async def test_a_close_that_is_cancelled_goes_on_to_its_end(tmp_path: Path):
    for turns in range(1, 30):
        opened = aio.open(tmp_path, host="ab" * 32)
        me = await opened.__aenter__()
        waiting = asyncio.create_task((await me.conversation("notes")).ask("Anyone?"))
        await asyncio.sleep(0)
        closing = asyncio.create_task(opened.__aexit__(None, None, None))
        for _ in range(turns):
            await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait({closing})
        async with asyncio.timeout(5):
            with pytest.raises(ReplicaClosed):
                await waiting
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert not _open_files_of(tmp_path)


def _open_files_of(folder: Path) -> list[Path]:
    files = [file.readlink() for file in Path("/proc/self/fd").iterdir() if file.exists()]
    return [file for file in files if file.is_relative_to(folder)]


async def test_who_waits_for_a_name_that_another_process_keeps_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    other = Claims(tmp_path / "log" / "log.db")
    async with aio.open(tmp_path) as me:
        assert other.claim(b"library name late")
        monkeypatch.setattr(processes, "ANSWER_S", 0.0)
        with pytest.raises(StoreLocked):
            await me.conversation("late")
    other.close()


async def test_who_waits_for_a_name_that_another_process_takes_hears_so(tmp_path: Path):
    other = Claims(tmp_path / "log" / "log.db")
    async with aio.open(tmp_path) as me:
        assert other.claim(b"library name late")
        waiting = asyncio.create_task(me.conversation("late"))
        await asyncio.sleep(0)
    async with asyncio.timeout(5):
        with pytest.raises(ReplicaClosed):
            await waiting
    other.close()


async def test_who_reads_the_store_while_the_replica_closes_hears_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with aio.open(tmp_path) as me:
        read, has_closed = me._core.store.conversations, asyncio.Event()

        async def late() -> list[Stored]:
            await has_closed.wait()
            return await read()

        monkeypatch.setattr(me._core.store, "conversations", late)
        waiting = asyncio.create_task(me.sync())
        await asyncio.sleep(0)
    has_closed.set()
    with pytest.raises(ReplicaClosed):
        await waiting


def test_an_iteration_that_was_left_ends_with_its_replica(tmp_path: Path):
    with antiphon.open(tmp_path) as me:
        events = me.events()
        me.conversation("notes").say("Heard.")
        said = next(event.text for event in events if isinstance(event, antiphon.Said))
    assert said == "Heard."
    events.close()
    assert next(events, None) is None


def test_an_iteration_that_is_collected_in_the_loops_thread_ends(tmp_path: Path):
    with antiphon.open(tmp_path) as me:
        events = me.events()
        me.conversation("notes").say("Heard.")
        next(iter(events))
        cycle: list[object] = [events]
        cycle.append(cycle)
        gc.disable()
        try:
            del events, cycle

            async def collect() -> int:
                return gc.collect()

            assert me._portal.call(collect)
        finally:
            gc.enable()
        assert me.conversation("notes").say("Still open.")


def test_an_iterator_that_was_never_begun_is_released(tmp_path: Path):
    with antiphon.open(tmp_path) as me:
        notes = me.conversation("notes")
        before = _listeners(me)
        events = [notes.events(), me.events()]
        assert _listeners(me) == before + 2
        notes.say("Heard.")
        assert next(one for one in events[0] if isinstance(one, antiphon.Said)).text == "Heard."
        del events[1]  # the other one has begun, and goes on
        assert _listeners(me) == before + 1


def _listeners(me: antiphon.Replica) -> int:
    return len(me._core._replica._listeners)


def test_an_iterator_ends_quietly_while_another_thread_closes_its_replica(
    monkeypatch: pytest.MonkeyPatch,
):
    async def numbers() -> AsyncGenerator[int, None]:
        for number in range(3):
            yield number

    portal = Portal()
    finish, reading = portal.finish, Iteration(portal, Steps(numbers(), lambda: None))

    def close_first(function: Any) -> None:
        portal.close()
        finish(function)

    monkeypatch.setattr(portal, "finish", close_first)
    assert next(reading) == 0
    reading.close()
    assert not portal.is_open
