"""Cases of chapter 09 §5: mailboxes of invitations."""

import os
from typing import Any

from antiphon.conformance.cases import check, equal
from antiphon.conformance.io.calls import PATIENCE_S, Caller, refusal
from antiphon.conformance.io.hub.run import TABLE, HubRun
from antiphon.v1 import invitation_pb2 as pb
from antiphon.v1.invitation_pb2_grpc import InvitationServiceStub
from replica.io import now_ms
from replica.limits import DEPOSITS_MAX, INVITATION_LIFETIME_S

_theme = TABLE.theme("mailboxes")

HOUR_MS = 3_600_000
NO_ANSWER = pb.DepositResponse()


def _service(caller: Caller) -> Any:
    return InvitationServiceStub(caller.channel)


async def _open(caller: Caller, name: bytes, lifetime_ms: int = HOUR_MS) -> None:
    request = pb.OpenMailboxRequest(mailbox=name, expire_time_ms=now_ms() + lifetime_ms)
    await _service(caller).OpenMailbox(request, metadata=caller.metadata, timeout=PATIENCE_S)


async def _deposit(caller: Caller, name: bytes, proof: bytes) -> pb.DepositResponse:
    request = pb.DepositRequest(mailbox=name, proof=proof)
    response: pb.DepositResponse = await _service(caller).Deposit(
        request, metadata=caller.metadata, timeout=PATIENCE_S
    )
    return response


async def _collect(caller: Caller, name: bytes) -> pb.CollectResponse:
    request = pb.CollectRequest(mailboxes=[name])
    response: pb.CollectResponse = await _service(caller).Collect(
        request, metadata=caller.metadata, timeout=PATIENCE_S
    )
    return response


@_theme.shows("TRUST-24")
async def a_proof_is_answered_alike_in_any_mailbox(run: HubRun) -> None:
    """A proof in an unknown, waiting, full or used mailbox gets the same answer."""
    inviter, newcomer, late = [await run.enter(run.new().owner) for _ in range(3)]
    name, proof = os.urandom(32), os.urandom(32)
    equal(await _deposit(late, name, proof), NO_ANSWER, "the answer of an unknown mailbox")
    await _open(inviter, name)
    equal(await _deposit(newcomer, name, proof), NO_ANSWER, "the answer of a waiting mailbox")
    granted = pb.AnswerRequest(
        mailbox=name, newcomer=newcomer.public, verdict=pb.JOIN_VERDICT_GRANTED
    )
    await _service(inviter).Answer(granted, metadata=inviter.metadata)
    found = await _deposit(newcomer, name, proof)
    equal(found.verdict, pb.JOIN_VERDICT_GRANTED, "the answer to the key that left the proof")
    equal(await _deposit(late, name, proof), NO_ANSWER, "the answer of a used mailbox")
    equal(await _deposit(newcomer, name, bytes(32)), NO_ANSWER, "the answer to another proof")
    for _ in range(DEPOSITS_MAX):
        other = await run.enter(run.new().owner)
        equal(await _deposit(other, name, proof), NO_ANSWER, "the answer of a full mailbox")
    proofs = (await _collect(inviter, name)).proofs
    equal(len(proofs), DEPOSITS_MAX, "the number of proofs in a full mailbox")


@_theme.shows("TRUST-24")
async def a_later_proof_replaces_one_without_an_answer(run: HubRun) -> None:
    """A key has one proof in a mailbox: the later one, or the first that was answered."""
    inviter, newcomer = [await run.enter(run.new().owner) for _ in range(2)]
    name, wrong, right = [os.urandom(32) for _ in range(3)]
    await _open(inviter, name)
    await _deposit(newcomer, name, wrong)
    await _deposit(newcomer, name, right)
    granted = pb.AnswerRequest(
        mailbox=name, newcomer=newcomer.public, verdict=pb.JOIN_VERDICT_GRANTED
    )
    await _service(inviter).Answer(granted, metadata=inviter.metadata)
    equal(await _deposit(newcomer, name, wrong), NO_ANSWER, "the answer to the earlier proof")
    proofs = [one.proof for one in (await _collect(inviter, name)).proofs]
    equal(proofs, [right], "the proofs in the mailbox")
    found = await _deposit(newcomer, name, right)
    equal(found.verdict, pb.JOIN_VERDICT_GRANTED, "the answer to the later proof")


@_theme.shows("TRUST-24")
async def a_mailbox_that_is_opened_again_keeps_its_proofs(run: HubRun) -> None:
    """An owner that opens its mailbox again collects the proofs that were left before."""
    inviter, newcomer = [await run.enter(run.new().owner) for _ in range(2)]
    name, proof = os.urandom(32), os.urandom(32)
    await _open(inviter, name)
    await _deposit(newcomer, name, proof)
    await _open(inviter, name, 2 * HOUR_MS)
    proofs = [one.proof for one in (await _collect(inviter, name)).proofs]
    equal(proofs, [proof], "the proofs in a mailbox that was opened again")


@_theme.shows("TRUST-24")
async def a_mailbox_is_of_the_key_that_opened_it(run: HubRun) -> None:
    """Another key collects, answers and closes nothing of a mailbox."""
    inviter, newcomer, other = [await run.enter(run.new().owner) for _ in range(3)]
    name, proof = os.urandom(32), os.urandom(32)
    await _open(inviter, name)
    await _deposit(newcomer, name, proof)
    found = await _collect(other, name)
    equal((list(found.proofs), list(found.absent)), ([], [name]), "what another key collects")
    answer = pb.AnswerRequest(
        mailbox=name, newcomer=newcomer.public, verdict=pb.JOIN_VERDICT_GRANTED
    )
    await _service(other).Answer(answer, metadata=other.metadata)
    close = pb.CloseMailboxRequest(mailbox=name)
    await _service(other).CloseMailbox(close, metadata=other.metadata)
    (kept,) = (await _collect(inviter, name)).proofs
    equal((kept.newcomer, kept.proof), (newcomer.public, proof), "the proof")
    equal(kept.verdict, pb.JOIN_VERDICT_UNSPECIFIED, "the verdict after another key's answer")
    await _service(inviter).CloseMailbox(close, metadata=inviter.metadata)
    equal(list((await _collect(inviter, name)).absent), [name], "the absent mailboxes")


@_theme.shows("TRUST-23")
async def a_mailbox_lasts_a_day_at_most(run: HubRun) -> None:
    """A mailbox that ends in more than 24 hours, or has ended, is ARGUMENT_INVALID."""
    inviter = await run.enter(run.new().owner)
    day_ms = INVITATION_LIFETIME_S * 1000
    await _open(inviter, os.urandom(32), day_ms - HOUR_MS)
    for lifetime_ms in (day_ms + HOUR_MS, -1000):
        found = await refusal(_open(inviter, os.urandom(32), lifetime_ms))
        equal(found.reason, "ARGUMENT_INVALID", f"the reason for {lifetime_ms} ms")
    check(found.next_step, "an error without a next step")
