"""HostService: what it states about profiles, renderings and replays, and to whom."""

import asyncio
import time
from dataclasses import dataclass
from typing import Any

import grpc
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from antiphon.conformance.cases import NotApplicable, check, equal
from antiphon.conformance.io.calls import PATIENCE_S, Refusal, refusal_of
from antiphon.conformance.io.host.service_calls import (
    NOT_FOUND,
    call,
    default_profile,
    reason_of,
    refusal_to,
    render_digest_of,
    rendered,
    replayed,
)
from antiphon.conformance.io.host.talk import CASES, UnderTest, long_request
from antiphon.v1 import host_pb2 as pb
from antiphon.v1.host_pb2_grpc import HostServiceStub
from replica.conversation import Outcome, ReplayMode
from replica.ids import EntryId, tagged_sha256
from replica.io import HostCalls, HostSample
from replica.limits import KEEP_S_MAX
from replica.log import Role, public_key
from replica.refusals import ArgumentInvalid, NotAllowed

_case = CASES.theme("calls").shows
CACHE_WORDS = ("tier", "prefix", "restore", "checkpoint", "archive")
"""Each is in the name of a metric that shows what is cached (docs/operating.md)."""
REPLAYS = 8
"""Replays that are asked for at once."""
REPLAYED_TOKENS = 60
_UNKNOWN = ("NOT_FOUND", NOT_FOUND)
_WRONG = ("INVALID_ARGUMENT", ArgumentInvalid.reason)
"""Statuses and reasons of calls about no conversation of the caller, and with wrong arguments."""


@_case("HOST-1", "HOST-70", "HOST-122")
async def profile_digest(run: UnderTest) -> None:
    """The digest of a profile covers every field of it."""
    async with run.talk() as talk, run.calls(talk) as calls:
        described = await calls.describe()
    equal(described.host_key, talk.host.key, "the host's key")
    offered = {info.digest for info in talk.host.profiles}
    for profile in described.profiles:
        equal(profile.info.digest, _digest_of(profile), "the digest of a profile")
        sampling = profile.info.sampling
        check(not (sampling.seed or sampling.logit_bias), "recommended sampling has a seed or bias")
        check(profile.info.digest in offered, "the hub was told of other profiles")


def _digest_of(profile: pb.Profile) -> bytes:
    fields = (
        profile.info.name.encode(), profile.weights_digest, profile.tokenizer_digest,
        profile.template_digest, profile.render_recipe_digest, profile.sampler_digest,
        profile.numerics.encode(), profile.info.context_tokens_max.to_bytes(4, "little"),
        bytes([profile.tools]), profile.grammar_engine.encode(),
    )  # fmt: skip
    data = b"".join(len(each).to_bytes(4, "little") + each for each in fields)
    return tagged_sha256(b"antiphon/v1/profile", data)


@_case("HOST-6", "HOST-100")
async def render(run: UnderTest) -> None:
    """Render returns the tokens of a seal's context, whose chain is the render digest."""
    async with run.talk() as talk, run.calls(talk) as calls:
        await talk.ask()
        second = await talk.ask("Another one.")
        profile = await default_profile(calls)
        order = talk.held.order
        seal_id = order.seal_of[second]
        tokens, stated = await rendered(talk, calls, seal_id)
        digest = render_digest_of(profile, tokens)
        equal(stated, digest, "the render digest of the call")
        equal(talk.seal_of(second).render_digest, digest, "the render digest of the seal")
        context = [entry.id for entry in order.context(seal_id)]
        equal([EntryId(entry) for entry, _ in tokens], context, "the rendered entries")
        counted = await calls.count_tokens(talk.held.id, at=seal_id)
        counts = [n for node in order.nodes[seal_id].chain() for n in node.seal.tokens_per_entry]
        equal(counted.context_tokens, sum(counts), "the tokens that CountTokens counts")
        equal([len(ids) for _, ids in tokens], counts, "the token counts of the seals")


@_case("HOST-5")
async def answers_are_spliced(run: UnderTest) -> None:
    """The recorded ids of an answer are its tokens in the next context."""
    async with run.talk() as talk, run.calls(talk) as calls:
        first = await talk.ask(tokens=8)
        second = await talk.ask("Another one.")
        order = talk.held.order
        tokens, _ = await rendered(talk, calls, order.seal_of[second])
        answer = await talk.answer(first)
        equal(
            dict(tokens)[order.generation_of(first) or b""],
            answer.token_ids,
            "the tokens of the answer",
        )


@_case("HOST-73", "HOST-79", "HOST-102")
async def replay(run: UnderTest) -> None:
    """A replay accepts what the host answered, with a receipt that verifies."""
    async with run.talk() as talk, run.calls(talk) as calls:
        for text in ("Name a colour.", "Another one."):
            await talk.ask(text)
        bitwise = (await calls.describe()).profiles[0].bitwise
        for mode in ReplayMode:
            findings, receipt = await replayed(talk, calls, mode)
            equal(len(findings), 2, "the number of findings")
            equal(receipt.log_digest, talk.held.log.digest, "the log digest of the receipt")
            if bitwise or mode is ReplayMode.REBUILD:
                outcomes = [Outcome(finding.outcome) for finding in findings]
                equal(outcomes, [Outcome.ACCEPTED] * 2, f"the outcomes of {mode.name}")


@_case("HOST-72")
async def replay_from_an_entry(run: UnderTest) -> None:
    """A replay from an entry judges the answers whose context has it, and no others."""
    async with run.talk() as talk, run.calls(talk) as calls:
        texts = ("Name a colour.", "Another one.", "One more.")
        asked = [await talk.ask(text) for text in texts]
        answers = [talk.held.order.generation_of(request) for request in asked]
        for first in (asked[1], answers[1]):
            findings, _ = await replayed(talk, calls, ReplayMode.REBUILD, first)
            equal([finding.answer for finding in findings], answers[1:], "the answers judged")


@_case("HOST-72", "LINK-90")
async def replays_at_once(run: UnderTest) -> None:
    """Of several replays asked for at once one is computed; the others may be tried again later."""
    async with run.talk() as talk, run.calls(talk) as calls:
        length = min(REPLAYED_TOKENS, talk.profile.context_tokens_max // 4)
        await talk.ask(tokens=length, output_tokens_min=length)
        await replayed(talk, calls, ReplayMode.VERIFY)
        request = pb.ReplayRequest(conversation=talk.held.id, mode=pb.REPLAY_MODE_VERIFY)
        found = await asyncio.gather(*(_timed(calls, request) for _ in range(REPLAYS)))
        refused = [one for one in found if isinstance(one, Refusal)]
        for one in refused:
            _check_refusal(one, "UNAVAILABLE", "REPLAY_BUSY", is_retryable=True)
        spans = [one for one in found if not isinstance(one, Refusal)]
        if not spans:
            raise NotApplicable("the host replays for somebody else")
        first_end = min(span.end_s for span in spans)
        begun = sum(span.begin_s < first_end for span in spans)
        equal(begun, 1, "the number of replays that run at once")
        if not refused:
            raise NotApplicable("the host replays faster than it is asked to")
        await replayed(talk, calls, ReplayMode.VERIFY)


@dataclass(frozen=True, slots=True)
class _Span:
    """When the first and the last message of a replay came."""

    begin_s: float
    end_s: float


async def _timed(calls: HostCalls, request: pb.ReplayRequest) -> _Span | Refusal:
    stub: Any = HostServiceStub(calls._channel)
    replaying = stub.Replay(request, metadata=calls._metadata(), timeout=PATIENCE_S)
    try:
        times = [time.monotonic() async for _ in replaying]
    except grpc.aio.AioRpcError as error:
        return refusal_of(error)
    check(times, "a replay ends without a receipt")
    return _Span(times[0], times[-1])


@_case("ERR-1", "LINK-90")
async def errors_have_the_form_of_the_chapter(run: UnderTest) -> None:
    """A refused call has a typed trailer: a reason, a next step, and a delay where it may help."""
    async with run.talk() as talk, run.calls(talk) as calls:
        request = await talk.ask()
        count = pb.CountTokensRequest(conversation=talk.held.id, text="word")
        found = await refusal_to(calls, "CountTokens", count, has_ticket=False)
        _check_refusal(found, "UNAUTHENTICATED", "TICKET_INVALID", is_retryable=True)
        unknown = bytes(32)
        seal = talk.held.order.seal_of[request]
        for name, message, code, reason in (
            ("CountTokens", pb.CountTokensRequest(conversation=unknown), *_UNKNOWN),
            ("Render", pb.RenderRequest(conversation=unknown, seal=seal), *_UNKNOWN),
            ("Evict", pb.EvictRequest(conversation=unknown), *_UNKNOWN),
            ("Pages", pb.PagesRequest(conversation=unknown), *_UNKNOWN),
            ("Replay", pb.ReplayRequest(conversation=talk.held.id), *_WRONG),
            (
                "Warm",
                pb.WarmRequest(conversation=talk.held.id, at=seal, keep_s=KEEP_S_MAX + 1),
                *_WRONG,
            ),
        ):
            _check_refusal(await refusal_to(calls, name, message), code, reason)


def _check_refusal(found: Refusal, code: str, reason: str, *, is_retryable: bool = False) -> None:
    equal((found.code, found.reason), (code, reason), "the error")
    check(found.next_step, f"{reason} comes without a next step")
    name = f"whether {reason} comes with the time to wait for"
    equal(found.is_retryable, is_retryable, name)


@_case("HOST-22", "HOST-72")
async def strangers(run: UnderTest) -> None:
    """Calls about a conversation are answered to its members alone."""
    async with run.talk() as talk, run.calls(talk, talk.stranger) as calls:
        request = await talk.ask()
        seal = talk.held.order.seal_of[request]
        asked = pb.RenderRequest(conversation=talk.held.id, seal=seal)
        pages = pb.PagesRequest(conversation=talk.held.id)
        count = pb.CountTokensRequest(conversation=talk.held.id, text="word")
        for name, message in (
            ("Render", asked), ("Pages", pages), ("CountTokens", count),
            ("Warm", pb.WarmRequest(conversation=talk.held.id, at=seal)),
            ("Evict", pb.EvictRequest(conversation=talk.held.id)),
            ("ListCheckpoints", pb.ListCheckpointsRequest(conversation=talk.held.id)),
        ):  # fmt: skip
            equal(await reason_of(call(calls, name, message)), NOT_FOUND, f"the answer to {name}")
        replaying = replayed(talk, calls, ReplayMode.VERIFY)
        equal(await reason_of(replaying), NOT_FOUND, "the answer to Replay")


@_case("HOST-80", "HOST-81")
async def stats(run: UnderTest) -> None:
    """Stats names a running request to members alone, and shows them nothing of the cache."""
    async with run.talk() as talk:
        await talk.other(Role.READER)
        request, _ = await long_request(talk)
        seen = []
        for key in (None, talk.stranger, Ed25519PrivateKey.generate()):
            async with run.calls(talk, key) as calls:
                seen.append(await calls.stats())
        if talk.held.order.answer(request) is not None:
            raise NotApplicable("the host answers faster than Stats")
        await talk.cancel(request)
        owner, reader, stranger = seen
        wanted = (talk.held.id, talk.member.public, talk.member.public)
        for sample in (owner, reader):
            equal(_named(sample, request), [wanted], "the conversation, author and owner named")
        equal(_named(stranger, request), [], "the request that a stranger is named")
        await talk.answer(request)
        _check_metrics(stranger)


def _named(sample: HostSample, request: EntryId) -> list[tuple[bytes, bytes, bytes]]:
    found = (one for one in sample.requests if one.request == request)
    return [(one.conversation, one.author, one.owner) for one in found]


def _check_metrics(sample: HostSample) -> None:
    """Check that a key that is no operator's is shown nothing of what is cached."""
    check(not sample.is_operator, "a stranger is called an operator")
    shown = [name for name in sample.metrics if any(word in name for word in CACHE_WORDS)]
    equal(shown, [], "the metrics of what is cached")
    sources = sample.metrics.get("antiphon_host_tokens_total", {})
    check("shared" not in sources, "tokens in pages of others are counted apart")


@_case("HOST-26")
async def evict_beside_an_answer(run: UnderTest) -> None:
    """Nothing of a conversation is evicted while it is being answered."""
    async with run.talk() as talk, run.calls(talk) as calls:
        request, _ = await long_request(talk)
        reason = await reason_of(call(calls, "Evict", pb.EvictRequest(conversation=talk.held.id)))
        if talk.held.order.answer(request) is not None:
            raise NotApplicable("the host answers faster than Evict")
        equal(reason, "CACHE_BUSY", "the answer to Evict")
        await talk.cancel(request)
        await talk.answer(request)


@_case("HOST-71", "PAGE-8")
async def kept(run: UnderTest) -> None:
    """A context that is kept is whole, and none is kept for longer than the protocol allows."""
    async with run.talk() as talk, run.calls(talk) as calls:
        request = await talk.ask()
        answer = talk.held.order.generation_of(request)
        assert answer is not None, "it is answered"
        plain = await calls.warm(talk.held.id, answer)
        equal(plain.kept_tokens, 0, "the tokens kept for a caller who asks for nothing")
        found = await calls.warm(talk.held.id, answer, keep_s=KEEP_S_MAX)
        equal(found.kept_tokens, found.context_tokens, "the tokens kept of a context")
        again = await calls.warm(talk.held.id, answer)
        equal(again.cached_tokens, again.context_tokens, "the tokens found of a kept context")
        reason = await reason_of(calls.warm(talk.held.id, answer, keep_s=KEEP_S_MAX + 1))
        equal(reason, ArgumentInvalid.reason, "the answer to a longer time")


@_case("HOST-26", "HOST-71")
async def readers(run: UnderTest) -> None:
    """A reader may neither evict what is cached nor let a context be computed."""
    async with run.talk() as talk, run.calls(talk, talk.stranger) as calls:
        await talk.grant(public_key(talk.stranger), Role.READER)
        request = await talk.ask()
        evict = pb.EvictRequest(conversation=talk.held.id)
        warm = pb.WarmRequest(conversation=talk.held.id, at=request)
        for name, message in (("Evict", evict), ("Warm", warm)):
            found = await reason_of(call(calls, name, message))
            equal(found, NotAllowed.reason, f"the answer to {name}")
