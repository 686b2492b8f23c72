"""A conversation in which the hub takes no more entries: each call says so, however late."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from replica.refusals import QuotaExceeded
from tests.antiphon.library.conftest import Lab

ENTRIES_MAX = 7
"""One turn, and the message of another."""
PATIENCE_S = 20.0


@pytest.fixture
async def lab(tmp_path: Path, lab_form: str) -> AsyncIterator[Lab]:
    """A hub with little room for each conversation."""
    made = Lab(tmp_path, lab_form)
    async with made.stack:
        await made.start_hub(entries_max=ENTRIES_MAX)
        yield made


async def assert_full(call: Any) -> None:
    with pytest.raises(QuotaExceeded, match="the conversation is full") as raised:
        async with asyncio.timeout(PATIENCE_S):
            await call
    assert raised.value.next_step.startswith("Go on in another conversation")


async def test_a_run_that_the_hub_refused_is_refused_again_to_whoever_follows_it_later(lab: Lab):
    """The hub names an entry once on a link: no event tells those who come behind it."""
    await lab.start_host()
    async with lab.open() as me:
        trip = await me.conversation("trip")
        await trip.ask("Good morning?")
        for _ in range(2):
            await assert_full(trip.run("Act.", key="job-17").result())
    async with lab.open() as me:
        trip = await me.conversation("trip")
        await assert_full(trip.run("Act.", key="job-17").result())


async def test_an_answer_can_be_cancelled_behind_a_message_that_finds_no_room(lab: Lab):
    """A lane has no gaps: in that of the message, the CANCEL would wait for it at the hub."""
    begun, ends = asyncio.Event(), asyncio.Event()

    async def pace(_index: int) -> None:
        begun.set()
        await ends.wait()

    host = (await lab.start_host(pace=pace)).replica
    async with lab.open() as me:
        trip = await me.conversation("trip")
        asking = asyncio.create_task(trip.ask("A long story?"))
        await begun.wait()
        held = host.shelf[trip.id]
        request = next(iter(held.order.requests))
        await assert_full(trip.ask("And a short one?"))
        await trip.cancel(request)
        assert await host.wait_for(lambda: held.order.is_cancelled(request), PATIENCE_S)
        ends.set()
        await asking
