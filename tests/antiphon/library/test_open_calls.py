"""Calls of other members that have no result: who is told of them, and when."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import antiphon
from antiphon.library.io import run_claim
from replica.ids import short
from replica.io.requests.answer_errors import AnswerOverdue
from replica.log.body import ToolCall
from tests.antiphon.library.conftest import Lab
from tests.support.scripted_host import Asked, Token, words

FORMS = ["blocking"]


@antiphon.tool(effect=True)
def act() -> str:
    """Act."""
    raise AssertionError("the run is left before it")


def reply(asked: Asked) -> list[Token | ToolCall]:
    """Call the tool `act`, or repeat what was said."""
    if asked.said.startswith("Act"):
        return [ToolCall(asked.request_id.hex()[:8], "act", "{}")]
    return list(words(f"Heard: {asked.said}"))


@asynccontextmanager
async def with_open_call(lab: Lab) -> AsyncIterator[tuple[Any, Any]]:
    """The owner's conversation, and another member's with a call that its run has left."""
    await lab.start_host(reply)
    async with lab.open() as me, lab.open("bob") as bob:
        mine = await me.conversation("trip")
        await mine.grant(bob.key)
        assert await mine.sync()
        theirs = await bob.get(mine.id)
        async for event in theirs.run("Act.", tools=[act], key="job-17"):
            if isinstance(event, antiphon.ToolStarted):
                break
        assert await theirs.sync()
        assert await mine.sync()
        yield mine, bob


async def test_a_call_that_was_abandoned_while_its_tool_ran_gets_no_second_result(lab: Lab):
    """The late result was written, and the model was told both."""
    began, goes_on = asyncio.Event(), asyncio.Event()

    @antiphon.tool(name="act")
    async def slow() -> str:
        """Act."""
        began.set()
        await goes_on.wait()
        return "done late"

    await lab.start_host(reply)
    async with lab.open() as me:
        trip = await me.conversation("trip")
        asking = asyncio.create_task(trip.ask("Act.", tools=[slow], timeout_s=10.0))
        await began.wait()
        (call,) = await trip.open_calls()
        await trip.abandon(call.id)
        goes_on.set()
        await asking
        done = [one for one in await trip.history() if isinstance(one, antiphon.ToolDone)]
    assert [one.is_error for one in done] == [True]


async def test_a_turn_behind_the_call_of_a_removed_member_is_refused_and_not_written(lab: Lab):
    async with with_open_call(lab) as (mine, bob):
        await mine.remove(bob.key)
        before = await mine.history()
        with pytest.raises(antiphon.CallOpen, match="no member any more: an owner") as raised:
            await mine.ask("Hello.", timeout_s=5.0)
        assert await mine.history() == before
        assert (raised.value.executor, short(bob.key) in raised.value.detail) == (bob.key, True)
        await mine.abandon(raised.value.call_id)
        assert (await mine.ask("Hello.")).text == "Heard: Hello."


async def test_a_wait_behind_another_members_call_ends_with_the_name_of_the_call(lab: Lab):
    async with with_open_call(lab) as (mine, bob):
        with pytest.raises(antiphon.CallOpen, match="who finishes it; an owner may") as raised:
            await mine.ask("Hello.", key="job-18", timeout_s=0.3)
        assert (raised.value.executor, short(bob.key) in raised.value.detail) == (bob.key, True)
        assert "this turn is in the log" in raised.value.detail
        assert await mine.open_calls() == ()
        (call,) = await mine.open_calls(all_members=True)
        assert (call.name, call.id) == ("act", raised.value.call_id)
        await mine.abandon(call.id)
        assert (await mine.ask("Hello.", key="job-18")).text  # the same turn, asked anew
        assert await mine.open_calls(all_members=True) == ()


async def test_a_turn_that_waits_is_told_that_the_member_ahead_was_removed(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(run_claim, "CLAIM_S", 0.05)
    monkeypatch.setattr(run_claim, "GONE_S", 0.2)
    async with with_open_call(lab) as (mine, bob):
        waiting = asyncio.create_task(mine.ask("Hello.", timeout_s=20.0))
        await lab.requests_at_host(mine.id, 2)
        await mine.remove(bob.key)
        with pytest.raises(antiphon.CallOpen, match=r"no member any more.*turn is in the log"):
            await waiting


async def test_a_wait_while_the_hub_is_away_blames_no_member(lab: Lab):
    async with with_open_call(lab) as (mine, _bob):
        assert lab.hub is not None
        await lab.hub.stop()
        with pytest.raises(AnswerOverdue):
            await mine.ask("Hello.", timeout_s=0.3)


@antiphon.tool
def act_at_once() -> str:
    """Act."""
    return "done"


async def test_a_branch_that_would_lack_the_result_of_a_call_is_not_begun(lab: Lab):
    """The host refused it, and what was asked there next waited for ever."""
    await lab.start_host(
        lambda asked: (
            [ToolCall(asked.request_id.hex()[:8], "act_at_once", "{}")]
            if asked.said == "Act."
            else list(words("Done."))
        )
    )
    async with lab.open() as me:
        trip = await me.conversation("trip")
        found: dict[type[Any], Any] = {}
        async for event in trip.run("Act.", tools=[act_at_once]):
            found[type(event)] = event
        before = await trip.history()
        with pytest.raises(antiphon.CallOpen, match="begin it behind the result") as raised:
            await trip.at(found[antiphon.ToolCalled].entry).ask("Again?")
        assert raised.value.call_id == found[antiphon.ToolCalled].call.id
        assert await trip.history() == before
        behind = await trip.at(found[antiphon.ToolDone].entry).ask("Again?")
        assert behind.text == "Done."
