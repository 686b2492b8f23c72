"""Calls of HostService that several themes make, and the digest of a rendering."""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Iterable, Sequence
from typing import Any

from antiphon.conformance.cases import NotApplicable, Violation
from antiphon.conformance.io.calls import PATIENCE_S, Refusal, refusal
from antiphon.conformance.io.host.talk import Talk
from antiphon.v1 import host_pb2 as pb
from antiphon.v1.host_pb2_grpc import HostServiceStub
from replica.conversation import Finding, Receipt, ReplayMode
from replica.errors import AntiphonError
from replica.ids import Digest, EntryId, tagged_sha256
from replica.io import HostCalls, rpc

NOT_FOUND = "CONVERSATION_NOT_FOUND"
"""The answer to a stranger, and of a host that has not received the conversation yet."""
RETRY_S = 0.05

Tokens = Sequence[tuple[bytes, Sequence[int]]]
"""Entries with their token ids."""


async def call(calls: HostCalls, name: str, request: Any) -> Any:
    """Call a method that has no wrapper. Raises AntiphonError."""
    await calls.authenticate()
    stub: Any = HostServiceStub(calls._channel)
    method = getattr(stub, name)
    return await rpc.typed(method(request, metadata=calls._metadata(), timeout=60.0))


async def refusal_to(
    calls: HostCalls, name: str, request: Any, *, has_ticket: bool = True
) -> Refusal:
    """Return the error with which a call ends. Raises Violation where it succeeds."""
    await calls.authenticate()
    stub: Any = HostServiceStub(calls._channel)
    metadata = calls._metadata() if has_ticket else ()
    return await refusal(getattr(stub, name)(request, metadata=metadata, timeout=60.0))


async def reason_of(called: Awaitable[Any]) -> str:
    """Return the reason with which a call is refused, or "an answer"."""
    try:
        await called
    except AntiphonError as error:
        return error.reason
    return "an answer"


async def default_profile(calls: HostCalls) -> pb.Profile:
    """Return the profile that the host uses where none is named."""
    profile: pb.Profile = (await calls.describe()).profiles[0]
    return profile


async def require_bitwise(calls: HostCalls) -> None:
    """Raise NotApplicable unless tokens of two answers may be compared."""
    if not (await default_profile(calls)).bitwise:
        raise NotApplicable("the host is not bitwise")


async def replayed(
    talk: Talk, calls: HostCalls, mode: ReplayMode, first: EntryId | None = None
) -> tuple[list[Finding], Receipt]:
    """Replay a conversation, once the host has all of it. Raises AntiphonError, Violation.

    With `first`, only the answers whose context has that entry are judged.
    """
    give_up_at = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up_at:
        found, receipt = await _replayed_now(talk, calls, mode, first)
        if receipt.log_digest == talk.held.log.digest:
            return found, receipt
        await asyncio.sleep(RETRY_S)
    raise Violation("the host never replayed the whole conversation")


async def _replayed_now(
    talk: Talk, calls: HostCalls, mode: ReplayMode, first: EntryId | None
) -> tuple[list[Finding], Receipt]:
    findings = []
    async for event in calls.replay(talk.held.id, mode, first):
        if isinstance(event, Finding):
            findings.append(event)
        elif isinstance(event, Receipt):
            return findings, event
    raise Violation("the replay ends without a receipt")


async def rendered(talk: Talk, calls: HostCalls, seal: EntryId) -> tuple[Tokens, bytes]:
    """Return the tokens of each entry of a seal's context, and the render digest."""
    found = await call(calls, "Render", pb.RenderRequest(conversation=talk.held.id, seal=seal))
    return [(entry.entry, tuple(entry.token_ids)) for entry in found.entries], found.render_digest


def render_digest_of(profile: pb.Profile, tokens: Iterable[tuple[bytes, Sequence[int]]]) -> Digest:
    """Return the chained digest of entries and their tokens (spec/07-host §2)."""
    recipes = profile.tokenizer_digest + profile.template_digest + profile.render_recipe_digest
    digest: bytes = tagged_sha256(b"antiphon/v1/render", recipes)
    for entry, token_ids in tokens:
        ids = b"".join(i.to_bytes(4, "little") for i in token_ids)
        count = len(token_ids).to_bytes(4, "little")
        digest = hashlib.sha256(digest + entry + count + ids).digest()
    return Digest(digest)
