"""Verdicts of cases: wrong answers, reasons for none, and the order in which they run."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from antiphon.conformance.cases import Check, Violation
from antiphon.conformance.io.hub import HubRun, judge, judge_hub
from antiphon.v1 import sync_pb2 as pb
from syncd.io.config import HubConfig
from syncd.io.server import start

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


async def test_cases_behind_the_end_of_a_hub_are_not_run(tmp_path: Path) -> None:
    hub = await start(HubConfig(data_dir=tmp_path, listen="127.0.0.1:0"))
    begun = asyncio.Event()

    async def ends(run: HubRun) -> None:
        await begun.wait()
        await hub.stop()
        await run.enter(run.new().owner)

    async def beside(run: HubRun) -> None:
        owner = await run.enter(run.new().owner)
        begun.set()
        while True:
            await owner.call("Hosts", pb.HostsRequest())

    async def other(run: HubRun) -> None:
        pass

    checks = [check("a/ends", ends), check("a/beside", beside), check("timing/other", other)]
    told: list[str] = []
    found = await judge_hub(HubRun(hub.address), checks, lambda one: told.append(one.case.name))
    gone = [o.not_run for o in found if o.not_run]
    (failing,) = [o for o in found if not o.not_run]
    # Of a call that was under way as the hub stopped, or of one behind that.
    assert any(status in failing.problems[0] for status in ("CANCELLED", "UNAVAILABLE"))
    assert len(gone) == 2
    assert set(gone) == {
        f"the hub at {hub.address} answers no more since {failing.case.name}: start it again"
    }
    assert sorted(told) == ["a/beside", "a/ends", "timing/other"]


async def test_a_hub_that_answers_wrongly_is_there(tmp_path: Path) -> None:
    hub = await start(HubConfig(data_dir=tmp_path, listen="127.0.0.1:0"))

    async def fails(run: HubRun) -> None:
        raise Violation("a wrong answer")

    checks = [check("a/one", fails), check("a/two", fails)]
    found = await judge_hub(HubRun(hub.address), checks)
    assert [o.problems for o in found] == [("a wrong answer",)] * 2
    await hub.stop()


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
