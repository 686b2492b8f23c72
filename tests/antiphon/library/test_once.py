"""What `open`, `join` and `local` return is for one `with`, and says so in a second one."""

import asyncio
import gc
from pathlib import Path

import pytest

import antiphon
from antiphon import aio
from antiphon.library.errors import ReplicaClosed

SECOND = "is for one `with`; call them again for another"


def test_a_context_of_the_blocking_form_is_entered_once(tmp_path: Path):
    opening = antiphon.open(tmp_path)
    with opening as me:
        notes = me.conversation("notes")
        with pytest.raises(ReplicaClosed, match=SECOND), opening:
            pass
        notes.say("The first one goes on.")
    with pytest.raises(ReplicaClosed, match=SECOND), opening:
        pass
    with antiphon.open(tmp_path) as me:
        assert len(me.get(notes.id).history()) == 1


async def test_a_context_of_the_async_form_is_entered_once(tmp_path: Path):
    opening = aio.open(tmp_path)
    async with opening as me:
        notes = await me.conversation("notes")
        with pytest.raises(ReplicaClosed, match=SECOND):
            await opening.__aenter__()
        await notes.say("The first one goes on.")
    with pytest.raises(ReplicaClosed, match=SECOND):
        await opening.__aenter__()


@pytest.mark.parametrize("form", [antiphon, aio])
def test_so_are_those_of_join_and_local(form, tmp_path: Path):
    """Entered once, though that fails: the arguments are looked at then."""
    for context in (form.join("no code", tmp_path), form.local("")):
        for reason in (antiphon.AntiphonError, ReplicaClosed):
            with pytest.raises(reason) as refused:
                enter(context)
        assert refused.match(SECOND)


def test_what_is_not_begun_says_how_it_is(tmp_path: Path):
    """It had no attribute of that name, and nothing more was said."""
    with pytest.raises(AttributeError, match=r"`with … as me:`, then `me\.conversation`"):
        antiphon.open(tmp_path).conversation("notes")  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"`async with … as me:`, then `me\.conversation`"):
        aio.open(tmp_path).conversation("notes")  # type: ignore[attr-defined]
    assert not hasattr(antiphon.join("a code", tmp_path), "close")
    assert [*tmp_path.iterdir()] == []


def enter(context) -> None:  # type: ignore[no-untyped-def]
    if hasattr(context, "__enter__"):
        context.__enter__()
    else:
        context.__aenter__().send(None)


def test_a_with_that_ends_by_an_error_passes_it_on(tmp_path: Path):
    with pytest.raises(ZeroDivisionError), antiphon.open(tmp_path) as me:
        me.conversation("notes").say(str(1 // 0))
    with pytest.raises(ReplicaClosed):
        me.conversation("notes")


def test_what_a_blocking_context_returned_stays_open_without_it(tmp_path: Path):
    me = antiphon.open(tmp_path).__enter__()
    gc.collect()
    notes = me.conversation("notes")
    del me
    gc.collect()
    assert notes.say("Still open.")
    notes._portal.close()
    with pytest.raises(ReplicaClosed):
        notes.say("Closed.")


async def test_what_an_async_context_returned_keeps_it_open(tmp_path: Path):
    me = await aio.open(tmp_path).__aenter__()
    notes = await me.conversation("notes")
    core = me._core
    del me
    gc.collect()
    await asyncio.sleep(0)  # Python would close the generator in a task of its own
    assert await notes.say("Still open.")
    closed = asyncio.Event()
    core.listen(lambda _event: closed.set() if core.is_closed else None)
    del notes
    gc.collect()
    async with asyncio.timeout(20):
        await closed.wait()
