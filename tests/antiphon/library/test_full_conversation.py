"""A conversation in which the hub takes no more entries: each call says so, however late."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from replica.refusals import QuotaExceeded
from tests.antiphon.library.conftest import Lab

ENTRIES_MAX = 8
PATIENCE_S = 20.0


@pytest.fixture
async def lab(tmp_path: Path, lab_form: str) -> AsyncIterator[Lab]:
    """A hub with a host, and little room for each conversation."""
    made = Lab(tmp_path, lab_form)
    async with made.stack:
        await made.start_hub(entries_max=ENTRIES_MAX)
        await made.start_host()
        yield made


async def assert_full(call: Any) -> None:
    with pytest.raises(QuotaExceeded, match="the conversation is full"):
        async with asyncio.timeout(PATIENCE_S):
            await call


async def ask_until_full(trip: Any) -> None:
    for _ in range(ENTRIES_MAX):
        await trip.ask("And now?")


async def test_a_run_that_the_hub_refused_is_refused_again_to_whoever_follows_it_later(lab: Lab):
    """The hub names an entry once on a link: no event tells those who come behind it."""
    async with lab.open() as me:
        trip = await me.conversation("trip")
        await assert_full(ask_until_full(trip))
        for _ in range(2):
            await assert_full(trip.run("Act.", key="job-17").result())
    async with lab.open() as me:
        trip = await me.conversation("trip")
        await assert_full(trip.run("Act.", key="job-17").result())
