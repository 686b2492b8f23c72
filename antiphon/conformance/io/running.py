"""Runs the cases of a black-box suite, and makes outcomes of what they raise."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

import grpc

from antiphon.conformance.cases import Check, NotApplicable, Violation
from antiphon.conformance.io.calls import call_of, refusal_of
from antiphon.conformance.io.member import Overdue
from antiphon.conformance.report import Outcome
from replica.errors import AntiphonError

CASE_SECONDS_MAX = 120.0

_Run = TypeVar("_Run")


async def outcome_of(one: Check[_Run], run: _Run, seconds_max: float = CASE_SECONDS_MAX) -> Outcome:
    """Run one case; no answer of the peer, however wrong, ends the run of the others."""
    whole = asyncio.timeout(seconds_max)
    try:
        async with whole:
            await one.run(run)
    except NotApplicable as error:
        return Outcome(one, (), str(error) or "not applicable")
    except (Violation, Overdue) as error:
        return Outcome(one, (str(error),))
    except AntiphonError as error:
        return Outcome(one, (f"{error.reason}: {error.detail}",))
    except TimeoutError:
        late = f"the case took more than {seconds_max:.0f} s"
        return Outcome(one, (late if whole.expired() else "the peer did not answer in time",))
    except grpc.aio.AioRpcError as error:
        return Outcome(one, (_of_call(error),))
    except Exception as error:  # noqa: BLE001  # an answer that the case did not foresee
        return Outcome(one, (f"unexpected answer: {type(error).__name__}: {error}",))
    return Outcome(one, ())


def _of_call(error: grpc.aio.AioRpcError) -> str:
    try:
        return f"{call_of(error)} ended with {refusal_of(error).reason}"
    except Violation as problem:
        return str(problem)


async def outcomes_of(checks: Iterable[Check[_Run]], run: _Run) -> AsyncIterator[Outcome]:
    """Run cases one after the other."""
    for one in checks:
        yield await outcome_of(one, run)
