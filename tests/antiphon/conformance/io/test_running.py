"""Outcomes of cases: what a case raises says whether it failed, or was not run."""

import asyncio

import grpc
import pytest
from google.rpc import status_pb2

from antiphon.conformance.cases import Check, NotApplicable, Violation
from antiphon.conformance.io.calls import noted
from antiphon.conformance.io.member import Overdue
from antiphon.conformance.io.running import outcome_of, outcomes_of
from replica.refusals import ConversationUnknown


def case(error: Exception | None) -> Check[None]:
    async def run(_run: None) -> None:
        if error is not None:
            raise error

    return Check("theme/name", ("LINK-1",), "A title.", run)


@pytest.mark.parametrize(
    ("error", "problem", "not_run"),
    [
        (None, "", ""),
        (Violation("it lies"), "it lies", ""),
        (Overdue("no Opened"), "no Opened", ""),
        (ConversationUnknown("gone"), "CONVERSATION_NOT_FOUND: gone", ""),
        (NotApplicable("no such part"), "", "no such part"),
    ],
)
async def test_what_a_case_raises_is_its_outcome(
    error: Exception | None, problem: str, not_run: str
) -> None:
    outcome = await outcome_of(case(error), None)
    assert outcome.problems == ((problem,) if problem else ())
    assert outcome.not_run == not_run


async def test_an_answer_that_the_case_did_not_foresee_fails_it_alone() -> None:
    outcome = await outcome_of(case(ZeroDivisionError("by the peer's 0")), None)
    assert outcome.problems == ("unexpected answer: ZeroDivisionError: by the peer's 0",)


@pytest.mark.parametrize(
    "trailer", [b"\xff", status_pb2.Status(code=3, message="another").SerializeToString()]
)
async def test_a_malformed_status_fails_its_case_alone(trailer: bytes) -> None:
    metadata = grpc.aio.Metadata(("grpc-status-details-bin", trailer))
    code = grpc.StatusCode.INVALID_ARGUMENT
    error = grpc.aio.AioRpcError(code, grpc.aio.Metadata(), metadata, "one")
    (problem,) = (await outcome_of(case(error), None)).problems
    assert problem.startswith("a call ended with a malformed status: ")


async def test_a_call_that_is_refused_is_named() -> None:
    async def call() -> None:
        code = grpc.StatusCode.UNAVAILABLE
        raise grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), "away")

    async def run(_run: None) -> None:
        await noted("Push", call())

    (problem,) = (await outcome_of(Check("a/b", ("LINK-1",), "", run), None)).problems
    assert problem == "Push ended without a typed error: UNAVAILABLE away"


async def test_a_case_that_took_its_time_is_told_from_a_peer_that_did_not_answer() -> None:
    """A silent hub was said to take 60 s, after 20."""
    assert (await outcome_of(case(TimeoutError()), None)).problems == (
        "the peer did not answer in time",
    )

    async def run(_run: None) -> None:
        await asyncio.Event().wait()

    endless: Check[None] = Check("a/b", ("LINK-1",), "", run)
    assert (await outcome_of(endless, None, 0.01)).problems == ("the case took more than 0 s",)


async def test_cases_run_in_order() -> None:
    cases = [case(None), case(Violation("wrong"))]
    found = [outcome async for outcome in outcomes_of(cases, None)]
    assert [outcome.case for outcome in found] == cases
