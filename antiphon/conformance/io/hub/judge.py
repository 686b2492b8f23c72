"""Runs cases against a hub and collects their outcomes."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace

import grpc

from antiphon.conformance.cases import Check, Violation
from antiphon.conformance.io.calls import refusal_of
from antiphon.conformance.io.hub.run import HubRun
from antiphon.conformance.io.running import outcome_of
from antiphon.conformance.report import Outcome

AT_ONCE = 4
"""Cases that run at the same time, beside those that wait."""
CASE_SECONDS_MAX = 60.0
"""The longest time of a case, beside the time that it waits for."""
PRESENT_S = 10.0
"""How long a hub may take for the answer that shows that it is there."""


Told = Callable[[Outcome], None]


def _tell_nobody(_outcome: Outcome) -> None: ...


class _Presence:
    """Whether the hub still answers; it is asked behind each case that failed."""

    def __init__(self, run: HubRun) -> None:
        self._run = run
        self._asking = asyncio.Lock()
        self.gone_since = ""
        """The case that failed when the hub answered no more."""

    async def judge(self, check: Check[HubRun]) -> Outcome:
        """Run a case; those whose end or begin is behind the end of the hub are not run."""
        if self.gone_since:
            return self._not_run(check)
        found = await _outcome(self._run, check)
        if not found.problems or _is_rate_limited(found):
            return found
        async with self._asking:
            if self.gone_since:
                return self._not_run(check)
            if not await _answers(self._run):
                self.gone_since = check.name
        return found

    def _not_run(self, check: Check[HubRun]) -> Outcome:
        gone = f"the hub at {self._run.address} answers no more since {self.gone_since}"
        return Outcome(check, (), f"{gone}: start it again")


async def _answers(run: HubRun) -> bool:
    """Say whether the hub answers an Authenticate, be it with a refusal."""
    own = replace(run, _callers=[])
    try:
        async with asyncio.timeout(PRESENT_S):
            await own.enter(own.new().owner)
    except TimeoutError:
        return False
    except grpc.aio.AioRpcError as error:
        return error.code() is not grpc.StatusCode.UNAVAILABLE or _is_typed(error)
    except Exception:  # noqa: BLE001  # a wrong answer is one
        return True
    finally:
        await own.end()
    return True


def _is_typed(error: grpc.aio.AioRpcError) -> bool:
    try:
        refusal_of(error)
    except Violation:
        return False
    return True


async def judge_hub(
    run: HubRun, checks: Iterable[Check[HubRun]], tell: Told = _tell_nobody
) -> list[Outcome]:
    """Run the cases; tell each outcome, and return them in the order given.

    Those that wait for a time of the protocol run beside all others. Those that were
    refused with RATE_LIMITED meanwhile run again alone, then those that compare times or
    kill the hub. Once the hub answers no more the rest is not run.
    """
    chosen, presence = list(checks), _Presence(run)
    outcomes: dict[str, Outcome] = {}
    slots = asyncio.Semaphore(AT_ONCE)

    async def judged(check: Check[HubRun]) -> None:
        found = outcomes[check.name] = await presence.judge(check)
        tell(found)

    async def work(check: Check[HubRun]) -> None:
        if check.needs == "--wait":
            await judged(check)
            return
        async with slots:
            await judged(check)

    alone = sorted((check for check in chosen if _runs_alone(check)), key=lambda c: c.needs)
    await asyncio.gather(*(work(check) for check in chosen if check not in alone))
    # LIM-8: other cases made the hub fall behind, and it was right to refuse.
    limited = [check for check in chosen if _is_rate_limited(outcomes.get(check.name))]
    for check in (*limited, *alone):
        await judged(check)
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
