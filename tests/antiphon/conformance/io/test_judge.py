"""Verdicts of cases: wrong answers, reasons for none, and the order in which they run."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from antiphon.conformance.cases import Check, Violation
from antiphon.conformance.io.hub import HubRun, judge, judge_hub

Run = Callable[[HubRun], Awaitable[None]]


def check(name: str, run: Run, needs: str = "") -> Check[HubRun]:
    return Check(name, ("LINK-1",), "", run, needs)


async def verdict(run: Run) -> tuple[tuple[str, ...], str]:
    (found,) = await judge_hub(HubRun("127.0.0.1:1"), [check("a/case", run)])
    return found.problems, found.not_run


async def test_an_error_of_a_case_is_its_verdict() -> None:
    async def case(run: HubRun) -> None:
        raise Violation("a wrong answer")

    assert await verdict(case) == (("a wrong answer",), "")


async def test_a_case_that_takes_too_long_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    async def case(run: HubRun) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(judge, "CASE_SECONDS_MAX", 0.01)
    assert await verdict(case) == (("the case took more than 0 s",), "")


async def test_a_case_that_the_hub_was_too_busy_for_runs_again_alone() -> None:
    ran: list[str] = []

    async def busy(run: HubRun) -> None:
        ran.append("busy")
        if ran.count("busy") == 1:
            raise Violation("a call ended with RATE_LIMITED")

    async def kill(run: HubRun) -> None:
        ran.append("kill")

    async def other(run: HubRun) -> None:
        ran.append("other")

    checks = [check("a/kill", kill, "--restart"), check("a/busy", busy), check("a/other", other)]
    found = await judge_hub(HubRun("127.0.0.1:1"), checks)
    assert [outcome.problems for outcome in found] == [(), (), ()]
    assert [outcome.case.name for outcome in found] == ["a/kill", "a/busy", "a/other"]
    assert ran == ["busy", "other", "busy", "kill"]
