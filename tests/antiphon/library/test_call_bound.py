"""A run makes a bounded number of calls, and can be gone on with, in both forms."""

import json
from collections.abc import Callable
from typing import Any

import pytest

import antiphon
from replica.log.body import ToolCall
from tests.antiphon.library.conftest import Lab
from tests.support.scripted_host import Asked, Token, words

FORMS = ["blocking"]

NOT_CALLED = "Not called: the run has made as many calls as it may make."


def calls(count: int = 1) -> Callable[[Asked], list[Token | ToolCall]]:
    """Return a host that calls the tool as long as "Go on" was said last, or a result is read."""

    def reply(asked: Asked) -> list[Token | ToolCall]:
        if asked.said.startswith("Ask"):
            return list(words("Heard."))
        call_id = asked.request_id.hex()[:8]
        return [ToolCall(f"{call_id}-{n}", "step", json.dumps({"n": n})) for n in range(count)]

    return reply


class Steps:
    """A tool that counts its calls."""

    def __init__(self) -> None:
        self.made: list[int] = []

    @property
    def tool(self) -> antiphon.Tool:
        """The tool."""

        @antiphon.tool
        def step(n: int) -> str:
            """Take a step."""
            self.made.append(n)
            return "done"

        return step


async def test_a_run_ends_behind_its_last_call_and_leaves_the_branch_free(lab: Lab):
    await lab.start_host(calls())
    steps = Steps()
    async with lab.open() as me:
        trip = await me.conversation("trip")
        with pytest.raises(antiphon.RunTooLong, match="made 3 of 3 calls") as long:
            await trip.run("Go on.", tools=[steps.tool], calls_max=3).result()
        assert "calls_max" in long.value.next_step
        assert len(steps.made) == 3
        assert await trip.open_calls() == ()
        *_, last = await trip.history()
        assert isinstance(last, antiphon.ToolDone)
        assert (last.is_error, last.result) == (True, NOT_CALLED)
        assert (await trip.ask("Ask.")).text == "Heard."


async def test_a_program_that_says_nothing_has_a_bound_too(lab: Lab):
    await lab.start_host(calls(5))
    steps = Steps()
    async with lab.open() as me:
        trip = await me.conversation("trip")
        with pytest.raises(antiphon.RunTooLong):
            await trip.ask("Go on.", tools=[steps.tool])
        assert len(steps.made) == 32
        assert await trip.open_calls() == ()


async def test_the_key_goes_on_with_a_greater_bound(lab: Lab):
    await lab.start_host(calls())
    steps = Steps()
    for calls_max, made in ((2, 2), (2, 2), (3, 3), (5, 5), (0, 5)):
        async with lab.open() as me:
            trip = await me.conversation("trip")
            before = len(await trip.history())
            run = trip.run("Go on.", tools=[steps.tool], key="job-17", calls_max=calls_max)
            with pytest.raises(antiphon.RunTooLong):
                await run.result()
            assert len(steps.made) == made
            if calls_max in (0, 2) and before:
                assert len(await trip.history()) == before, "nothing was asked"


async def test_a_policy_is_bounded_too(talking: Lab):
    steps = Steps()

    def always(_answer: antiphon.Answer) -> antiphon.Call:
        return antiphon.Call("", "step", '{"n": 1}')

    async with talking.open() as me:
        trip = await me.conversation("trip")
        with pytest.raises(antiphon.RunTooLong):
            await trip.ask("Go on.", tools=[steps.tool], policy=always, calls_max=2)
        assert len(steps.made) == 2


async def test_a_started_call_is_made_whatever_the_bound(lab: Lab):
    await lab.start_host(calls())
    known: list[str] = []

    def resolve(effect_key: str) -> str:
        known.append(effect_key)
        return "was done"

    @antiphon.tool(effect=True, resolve=resolve)
    def step(n: int) -> str:
        """Take a step."""
        raise AssertionError(n)

    async with lab.open() as me:
        trip = await me.conversation("trip")
        run = trip.run("Go on.", tools=[step], key="job-17")
        async for event in run:
            if isinstance(event, antiphon.ToolStarted):
                break
        with pytest.raises(antiphon.RunTooLong):
            await trip.ask("Go on.", tools=[step], key="job-17", calls_max=0)
        assert len(known) == 1
        results = [e.result for e in await trip.history() if isinstance(e, antiphon.ToolDone)]
        assert results == ["was done", NOT_CALLED]


@pytest.mark.parametrize("calls_max", [-1, 1.5, None, True])
async def test_a_bound_is_a_whole_number(talking: Lab, calls_max: Any):
    async with talking.open() as me:
        trip = await me.conversation("trip")
        with pytest.raises(antiphon.AntiphonError, match="calls_max"):
            await trip.ask("Go on.", calls_max=calls_max)
