"""HostService answers proved keys that are members now, and nobody else."""

import asyncio
import time
from typing import Any

from antiphon.conformance.cases import Violation, check, equal
from antiphon.conformance.io.calls import PATIENCE_S
from antiphon.conformance.io.host.service_calls import NOT_FOUND, RETRY_S, call, reason_of
from antiphon.conformance.io.host.talk import CASES, Talk, UnderTest
from antiphon.v1 import host_pb2 as pb
from antiphon.v1 import sync_pb2
from antiphon.v1.host_pb2_grpc import HostServiceStub
from replica.conversation import Author
from replica.io import HostCalls, rpc
from replica.log import (
    Conflict,
    Cut,
    Entry,
    Member,
    Message,
    Revocation,
    Role,
    Speaker,
    Text,
    cuts_at_heads,
)

_case = CASES.theme("access").shows


@_case("LINK-1", "HOST-22")
async def proofs(run: UnderTest) -> None:
    """A ticket is given for a signature of the key alone."""
    async with run.talk() as talk, run.calls(talk) as calls:
        right = await reason_of(_obtain(calls, 0))
        equal(right, "an answer", "the answer to a signature of the key")
        equal(await reason_of(_obtain(calls, 1)), "PROOF_INVALID", "the answer to another one")


async def _obtain(calls: HostCalls, flipped: int) -> bytes:
    """Obtain a ticket with a signature in which the lowest bit is flipped, or not."""
    stub: Any = HostServiceStub(calls._channel)

    async def step(request: sync_pb2.AuthenticateRequest) -> sync_pb2.AuthenticateResponse:
        signature = request.client_signature
        if signature:
            request.client_signature = bytes([signature[0] ^ flipped]) + signature[1:]
        wrapped = pb.HostServiceAuthenticateRequest(request=request)
        answer = await rpc.typed(stub.Authenticate(wrapped, timeout=PATIENCE_S))
        response: sync_pb2.AuthenticateResponse = answer.response
        return response

    _, ticket = await rpc.obtain_ticket(step, calls._key, calls._host_key)
    return ticket


@_case("LINK-2", "HOST-22")
async def tickets(run: UnderTest) -> None:
    """A call needs a ticket, byte for byte as the host made it."""
    async with run.talk() as talk, run.calls(talk) as calls:
        ticket = await _obtain(calls, 0)
        stub: Any = HostServiceStub(calls._channel)
        request = pb.CountTokensRequest(conversation=talk.held.id, text="word")

        async def count(shown: bytes) -> str:
            metadata = ((rpc.TICKET_METADATA, shown),)
            return await reason_of(
                rpc.typed(stub.CountTokens(request, metadata=metadata, timeout=PATIENCE_S))
            )

        check(await count(ticket) in ("an answer", NOT_FOUND), "a right ticket is refused")
        for at in (0, len(ticket) // 2, len(ticket) - 1):
            forged = ticket[:at] + bytes([ticket[at] ^ 1]) + ticket[at + 1 :]
            equal(await count(forged), "TICKET_INVALID", f"the answer to one changed at byte {at}")
        equal(await count(b""), "TICKET_INVALID", "the answer to none")


@_case("HOST-22")
async def removed_members(run: UnderTest) -> None:
    """A key that is removed is answered like any stranger from then on."""
    async with run.talk() as talk:
        reader = await talk.other(Role.READER)
        async with run.calls(talk, talk.stranger) as calls:
            await _until(talk, calls, "an answer", "a reader")
            await _remove(talk, reader, cuts_at_heads(talk.held.log, reader.public))
            await _until(talk, calls, NOT_FOUND, "a removed reader")


@_case("ORD-6", "ORD-15")
async def messages_of_removed_members(run: UnderTest) -> None:
    """A seal names the membership as it is, and lists no message that a removal left out."""
    async with run.talk() as talk:
        writer, first = await talk.other(Role.WRITER), await talk.say()
        body = Message(Speaker.USER, (Text("Never mind."),))
        theirs = await talk.write(body, parents=(first.id,), author=writer)
        asked = talk.request_body(1)
        async with run.calls(talk, talk.stranger) as calls:
            await _until(talk, calls, "an answer", "a writer")
            before = (await talk.write(asked, parents=(theirs.id,))).id
            await talk.answer(before)
            check(theirs.id in talk.seal_of(before).entries, "a message of a writer is not listed")
            removal = await _remove(talk, writer, ())
            await _until(talk, calls, NOT_FOUND, "a removed writer")
        behind = await talk.write(asked, parents=(theirs.id,), conflict=Conflict.FORK)
        await talk.answer(behind.id)
        seal = talk.seal_of(behind.id)
        equal(seal.membership_heads, (removal.id,), "the membership heads of a seal")
        check(theirs.id not in seal.entries, "a message of a removed writer is listed")


async def _remove(talk: Talk, author: Author, cuts: tuple[Cut, ...]) -> Entry:
    body = Member(Revocation(author.public, cuts))
    return await talk.write(body, parents=talk.held.log.membership_heads())


async def _until(talk: Talk, calls: HostCalls, wanted: str, who: str) -> None:
    """Ask with the key of a caller until the host has heard of a change. Raises Violation."""
    request = pb.CountTokensRequest(conversation=talk.held.id, text="word")
    give_up_at, found = time.monotonic() + PATIENCE_S, ""
    while time.monotonic() < give_up_at:
        found = await reason_of(call(calls, "CountTokens", request))
        if found == wanted:
            return
        await asyncio.sleep(RETRY_S)
    raise Violation(f"the answer to {who} is {found}, must be {wanted}")
