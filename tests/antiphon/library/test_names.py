"""A name begins one conversation, whatever becomes of the call."""

import asyncio
import shutil
from pathlib import Path

import pytest

import antiphon
from replica.io.documents import TITLE_BYTES_MAX
from replica.refusals import ArgumentInvalid
from tests.antiphon.library.conftest import Lab
from tests.support.files import write_locked


async def test_a_cancelled_call_has_begun_the_conversation_of_its_name(tmp_path: Path):
    async with antiphon.aio.open(tmp_path) as me:
        async with write_locked(me._core.store.holding.own):
            task = asyncio.create_task(me.conversation("trip"))
            # No event tells of a conversation that is in memory and not durable.
            while not me._core.shelf:  # noqa: ASYNC110
                await asyncio.sleep(0)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        trip = await me.conversation("trip")
        assert [one.id for one in await me.conversations()] == [trip.id]
        assert await trip.title() == "trip"


async def test_a_name_that_the_document_has_no_room_for_begins_nothing(tmp_path: Path):
    async with antiphon.aio.open(tmp_path) as me:
        with pytest.raises(ArgumentInvalid, match="at most 32,768 bytes"):
            await me.conversation("é" * TITLE_BYTES_MAX)
        assert await me.conversations() == ()
        longest = await me.conversation("x" * TITLE_BYTES_MAX)
        assert await longest.title() == "x" * TITLE_BYTES_MAX
        await longest.rename("y" * TITLE_BYTES_MAX)


async def test_two_devices_that_began_a_name_apart_use_the_older_one_once_they_have_met(lab: Lab):
    first, second = lab.folder / "first", lab.folder / "second"
    async with antiphon.aio.open(first) as me:
        older = (await me.conversation("trip")).id
    second.mkdir()
    shutil.copy(first / "identity.key", second)
    async with antiphon.aio.open(second) as me:
        newer = (await me.conversation("trip")).id
    for _ in range(2):
        async with lab.open("first") as one, lab.open("second") as other:
            assert await one.sync()
            assert await other.sync()
    async with lab.open("first") as one, lab.open("second") as other:
        assert {c.id for c in await other.conversations()} == {older, newer}
        assert [(await me.conversation("trip")).id for me in (one, other)] == [older, older]
