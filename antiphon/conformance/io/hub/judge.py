"""Runs cases against a hub and collects their outcomes."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace

from antiphon.conformance.cases import Check
from antiphon.conformance.io.hub.run import HubRun
from antiphon.conformance.io.running import outcome_of
from antiphon.conformance.report import Outcome

AT_ONCE = 4
"""Cases that run at the same time, beside those that wait."""
CASE_SECONDS_MAX = 60.0
"""The longest time of a case, beside the time that it waits for."""


async def judge_hub(run: HubRun, checks: Iterable[Check[HubRun]]) -> list[Outcome]:
    """Run the cases; return their outcomes in the order given.

    Those that wait for a time of the protocol run beside all others. Those that were
    refused with RATE_LIMITED meanwhile run again alone, then those that compare times or
    kill the hub.
    """
    chosen = list(checks)
    outcomes: dict[str, Outcome] = {}
    slots = asyncio.Semaphore(AT_ONCE)

    async def work(check: Check[HubRun]) -> None:
        if check.needs == "--wait":
            outcomes[check.name] = await _outcome(run, check)
            return
        async with slots:
            outcomes[check.name] = await _outcome(run, check)

    alone = sorted((check for check in chosen if _runs_alone(check)), key=lambda c: c.needs)
    await asyncio.gather(*(work(check) for check in chosen if check not in alone))
    # LIM-8: other cases made the hub fall behind, and it was right to refuse.
    limited = [check for check in chosen if _is_rate_limited(outcomes.get(check.name))]
    for check in (*limited, *alone):
        outcomes[check.name] = await _outcome(run, check)
    return [outcomes[check.name] for check in chosen]


def _is_rate_limited(outcome: Outcome | None) -> bool:
    return outcome is not None and any("RATE_LIMITED" in one for one in outcome.problems)


def _runs_alone(check: Check[HubRun]) -> bool:
    return check.needs == "--restart" or check.name.startswith("timing/")


async def _outcome(run: HubRun, check: Check[HubRun]) -> Outcome:
    # Each case has connections of its own, which end with it.
    own = replace(run, _callers=[])
    limit_s = CASE_SECONDS_MAX + (run.wait_s if check.needs == "--wait" else 0)
    try:
        return await outcome_of(check, own, limit_s)
    finally:
        await own.end()
