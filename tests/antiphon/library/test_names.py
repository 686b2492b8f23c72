"""A name begins one conversation, whatever becomes of the call."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

import antiphon
from replica.conversation import Conversation as Held
from replica.ids import PublicKey
from replica.io import documents
from replica.log import Text
from replica.refusals import ArgumentInvalid
from tests.antiphon.library.conftest import Lab
from tests.support.files import write_locked

FORMS = ["blocking"]


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


@pytest.mark.parametrize("name", ["", " trip", "a\nb", "\x1b[31mred", "x" * 65])
async def test_a_name_that_no_line_shows_begins_nothing(tmp_path: Path, name: str):
    async with antiphon.aio.open(tmp_path) as me:
        with pytest.raises(ArgumentInvalid, match="a name or a title has 1 to 64 characters"):
            await me.conversation(name)
        assert await me.conversations() == ()
        longest = await me.conversation("é" * 64)
        with pytest.raises(ArgumentInvalid, match="a name or a title has 1 to 64 characters"):
            await longest.rename(name)
        assert await longest.title() == "é" * 64


@pytest.mark.parametrize("content", ["", " \n", (), [Text("")]])
async def test_an_empty_message_is_not_said(tmp_path: Path, content: Any):
    async with antiphon.aio.open(tmp_path, host="ab" * 32) as me:
        trip = await me.conversation("trip")
        for call in (trip.say, trip.ask):
            with pytest.raises(ArgumentInvalid, match="the message is empty"):
                await call(content)
        assert await trip.history() == ()


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


async def test_a_title_that_another_member_sets_changes_no_name(lab: Lab):
    """A program finds its conversation, and with it the keys of its runs, and no other."""
    first, second = lab.folder / "first", lab.folder / "second"
    async with lab.open("first") as me, lab.open("bob") as bob:
        old, trip = await me.conversation("old"), await me.conversation("trip")
        for one, title in ((trip, "Rome"), (old, "trip")):
            await one.grant(bob.key)
            assert await one.sync()
            theirs = await bob.get(one.id)
            await theirs.rename(title)
            assert await theirs.sync()
            assert await one.sync()
            assert await one.title() == title
        assert (await me.conversation("trip")).id == trip.id
        assert (await me.conversation("old")).id == old.id
    second.mkdir()
    shutil.copy(first / "identity.key", second)
    async with lab.open("second") as me:  # it has heard of no name
        assert (await me.conversation("trip")).id == trip.id
        assert (await me.conversation("old")).id == old.id
        assert len(await me.conversations()) == 2


async def test_a_title_of_another_member_that_its_own_key_adopts_is_the_name(lab: Lab):
    async with lab.open("first") as me, lab.open("bob") as bob:
        trip = await me.conversation("trip")
        await trip.grant(bob.key)
        assert await trip.sync()
        theirs = await bob.get(trip.id)
        await theirs.rename("Rome")
        assert await theirs.sync()
        assert await trip.sync()
        await trip.rename("Rome")
        assert (await me.conversation("Rome")).id == trip.id
        assert (await me.conversation("trip")).id != trip.id


async def test_a_conversation_that_its_own_key_renamed_has_the_new_name(tmp_path: Path):
    async with antiphon.aio.open(tmp_path) as me:
        trip = await me.conversation("trip")
        await trip.rename("Rome")
        assert (await me.conversation("Rome")).id == trip.id
        assert (await me.conversation("trip")).id != trip.id


async def test_titles_are_read_again_only_where_a_document_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    read: list[bytes] = []
    title_set_by = documents.title_set_by

    def note(held: Held, key: PublicKey) -> str | None:
        read.append(held.id)
        return title_set_by(held, key)

    monkeypatch.setattr(documents, "title_set_by", note)
    async with antiphon.aio.open(tmp_path) as me:
        trip, other = await me.conversation("trip"), await me.conversation("other")
        await me.conversation("trip")
        read.clear()
        await me.conversation("trip")
        assert read == []
        await other.rename("Rome")
        await me.conversation("trip")
        assert read == [other.id]
        assert (await me.conversation("Rome")).id == other.id != trip.id
