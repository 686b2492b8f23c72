"""Generators that their readers share, closed from outside and from within."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import antiphon
from antiphon.library.io.steps import Reading, Steps
from tests.antiphon.library.conftest import Lab
from tests.antiphon.library.test_calls import Booking


async def test_a_step_that_closes_its_own_generator_is_its_last():
    ended = []

    async def numbers() -> AsyncGenerator[int, None]:
        try:
            yield 1
            await steps.aclose()
            yield 2
            yield 3
        finally:
            ended.append(True)

    steps = Steps(numbers(), lambda: None)
    async with asyncio.timeout(10):
        assert [one async for one in steps] == [1, 2]
        assert steps.is_ended
        await steps.aclose()
    assert ended == [True]


async def test_the_end_of_an_async_with_ends_the_generator():
    ended = []

    async def numbers() -> AsyncGenerator[int, None]:
        try:
            for number in range(5):
                yield number
        finally:
            ended.append(True)

    async with Reading(Steps(numbers(), lambda: None)) as items:
        assert await anext(items) == 0
    assert ended == [True]
    assert await anext(items, None) is None


async def test_what_a_step_began_closes_the_generator_behind_the_next_item():
    begun = list[asyncio.Task[None]]()

    async def numbers() -> AsyncGenerator[int, None]:
        begun.append(asyncio.create_task(steps.aclose()))
        for number in range(5):
            yield number

    steps = Steps(numbers(), lambda: None)
    async with asyncio.timeout(10):
        assert await anext(steps) == 0
        await begun[0]
        assert not steps.is_ended
        assert [one async for one in steps] == [1]


async def test_a_tool_ends_its_own_run_behind_itself(lab: Lab):
    booking = Booking()
    await lab.start_host(booking.reply)
    async with lab.open() as me, asyncio.timeout(20):
        trip = await me.conversation("trip")
        run: Any = None
        events: Any = None

        @antiphon.tool(name="book", effect=True)
        async def book_async(city: str, nights: int) -> str:
            """Book nights in a city."""
            await run.close()
            return f"{nights} nights in {city}"

        @antiphon.tool(name="book", effect=True)
        def book_blocking(city: str, nights: int) -> str:
            """Book nights in a city."""
            run.inner.close()
            events.close()
            return f"{nights} nights in {city}"

        async def kinds() -> list[str]:
            nonlocal run, events
            if lab.form == "async":
                run = trip.run("Book two nights.", tools=[book_async], key="job-17")
                return [type(event).__name__ async for event in run]
            run = trip.run("Book two nights.", tools=[book_blocking], key="job-17")
            events = iter(run.inner)
            return [type(event).__name__ for event in await asyncio.to_thread(list, events)]

        assert (await kinds())[-1] == "ToolDone"
        assert await trip.open_calls() == ()
        again = await trip.ask("Book two nights.", tools=[booking.tool], key="job-17")
        assert again.text == "Heard: 2 nights in Rome"
        assert booking.booked == []
