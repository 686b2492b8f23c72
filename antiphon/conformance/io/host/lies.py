"""Lies: answers of another host that were changed, and the verdict of the one under test.

The other host is a key of the kit. It answers a request on the context of an honest answer,
whose tokens it copies, and states what a case says.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from antiphon.conformance.cases import check, equal
from antiphon.conformance.io.host.refusals import check_refused
from antiphon.conformance.io.host.service_calls import (
    default_profile,
    render_digest_of,
    rendered,
    replayed,
    require_bitwise,
)
from antiphon.conformance.io.host.talk import CASES, SEEDED, Talk, UnderTest
from antiphon.v1 import host_pb2 as pb
from replica.conversation import (
    Author,
    Cause,
    Finding,
    Outcome,
    ReplayMode,
    extend_digest,
    start_digest,
)
from replica.ids import Digest, EntryId
from replica.io import HostCalls
from replica.log import FinishReason, Generation, Role, Sampling, Text, Usage
from replica.order import context_digest

_case = CASES.theme("lies").shows
OTHER = Digest(b"other".ljust(32, b"."))
CLOSED: dict[str, object] = {
    "finish_reason": FinishReason.INTERRUPTED,
    "sampler_digest": None,
    "render_recipe_digest": None,
}
"""The statements of a host that closes an answer without its profile (HOST-35)."""
CHANGED = 3
"""The index of the token that is changed."""


@dataclass(frozen=True, slots=True)
class _Liar:
    """The other host, with an honest answer to copy."""

    talk: Talk
    calls: HostCalls
    author: Author
    profile: pb.Profile
    request: EntryId
    honest: Generation

    async def lie(self, **changes: object) -> EntryId:
        """Answer as the host under test did, but for `changes`; return the answer."""
        return await self.told(await self.sealed(), **changes)

    async def drawn_otherwise(self, **changes: object) -> EntryId:
        """Answer a request of another seed with the tokens of the honest answer."""
        return await self.told(await self.sealed(sampling=replace(SEEDED, seed=12)), **changes)

    async def sealed(self, sampling: Sampling = SEEDED, **changes: object) -> EntryId:
        """Seal a request like the honest one, on the same context; return the seal."""
        talk, body = self.talk, self.talk.held.order.request(self.request)
        assert body is not None, "it is answered"
        asked = await talk.again(
            self.request,
            body.output_tokens_max,
            host=self.author.public,
            sampling=sampling,
            output_tokens_min=body.output_tokens_min,
            logprobs=body.logprobs,
        )
        honest = talk.seal_of(self.request)
        entries = (*honest.entries[:-1], asked)
        tokens, _ = await rendered(talk, self.calls, talk.held.order.seal_of[self.request])
        own = [(entry, ids) for (_, ids), entry in zip(tokens, entries, strict=True)]
        stated = replace(
            honest,
            request=asked,
            entries=entries,
            context_digest=context_digest(talk.held.log, None, entries),
            render_digest=render_digest_of(self.profile, own),
        )
        seal = replace(stated, **changes)  # type: ignore[arg-type]  # a case names the fields
        return (await talk.write(seal, parents=(asked,), author=self.author)).id

    async def told(self, seal: EntryId, **changes: object) -> EntryId:
        """Answer behind a seal, with the draft digest of the tokens unless another is stated."""
        request = self.talk.held.order.nodes[seal].seal.request
        answer = replace(self.honest, **changes)  # type: ignore[arg-type]  # as above
        if "draft_digest" not in changes:
            drafts = extend_digest(start_digest(request, answer.run), answer.token_ids)
            answer = replace(answer, draft_digest=drafts)
        return (await self.talk.write(answer, parents=(seal,), basis=seal, author=self.author)).id

    def with_token(self) -> tuple[int, ...]:
        """Return the tokens of the honest answer, one of them changed."""
        ids = self.honest.token_ids
        other = next((i for i in ids if i != ids[CHANGED]), ids[CHANGED] ^ 1)
        return (*ids[:CHANGED], other, *ids[CHANGED + 1 :])

    async def findings(self) -> dict[EntryId, Finding]:
        """Let the host under test verify the conversation; return what it says of each answer."""
        found, _ = await replayed(self.talk, self.calls, ReplayMode.VERIFY)
        return {finding.answer: finding for finding in found}


@asynccontextmanager
async def _liar(run: UnderTest, *, bitwise: bool = True, logprobs: int = 0) -> AsyncIterator[_Liar]:
    async with run.talk() as talk, run.calls(talk) as calls:
        if bitwise:
            await require_bitwise(calls)
        author = await talk.other(Role.HOST)
        request = await talk.ask(tokens=6, sampling=SEEDED, output_tokens_min=6, logprobs=logprobs)
        profile, honest = await default_profile(calls), await talk.answer(request)
        yield _Liar(talk, calls, author, profile, request, honest)


def _check(found: Finding, outcome: Outcome, cause: Cause = Cause.NONE) -> None:
    stated = Outcome(found.outcome).name, Cause(found.cause).name
    equal(stated, (outcome.name, cause.name), "the finding")


@_case("HOST-74", "HOST-75")
async def changed_token(run: UnderTest) -> None:
    """A token that was changed is found at its index; a true copy is accepted."""
    async with _liar(run) as liar:
        same = await liar.lie()
        lie = await liar.lie(token_ids=liar.with_token())
        found = await liar.findings()
        _check(found[same], Outcome.ACCEPTED)
        _check(found[lie], Outcome.DIFFERS, Cause.TOKEN)
        equal(found[lie].token_index, CHANGED, "the index of the first difference")


@_case("HOST-74")
async def other_statements(run: UnderTest) -> None:
    """Parts, visible bytes, usage, finish reason and draft digest are those of the tokens."""
    async with _liar(run) as liar:
        honest, usage = liar.honest, liar.honest.usage
        changes: list[tuple[Cause, dict[str, object]]] = [
            (Cause.TEXT, {"parts": (*honest.parts, Text("!"))}),
            (Cause.TEXT, {"visible_bytes": honest.visible_bytes + 1}),
            (Cause.USAGE, {"usage": replace(usage, prompt_tokens=usage.prompt_tokens + 1)}),
            (Cause.USAGE, {"usage": replace(usage, output_tokens=usage.output_tokens + 1)}),
            (Cause.ENDING, {"finish_reason": FinishReason.STOP}),
            (Cause.DRAFTS, {"draft_digest": OTHER}),
        ]
        lies = [(cause, await liar.lie(**fields)) for cause, fields in changes]
        found = await liar.findings()
        for cause, lie in lies:
            _check(found[lie], Outcome.DIFFERS, cause)


@_case("HOST-74")
async def other_log_probabilities(run: UnderTest) -> None:
    """A recorded log probability is compared with the one computed."""
    async with _liar(run, logprobs=2) as liar:
        *before, last = liar.honest.logprobs
        changed = replace(last, logprob=last.logprob - 0.5)
        same = await liar.lie()
        lie = await liar.lie(logprobs=(*before, changed))
        found = await liar.findings()
        _check(found[same], Outcome.ACCEPTED)
        _check(found[lie], Outcome.DIFFERS, Cause.LOGPROBS)


@_case("HOST-36", "HOST-74")
async def unstated_recipe(run: UnderTest) -> None:
    """A lie is found where no rendering recipe is stated, and where no recipe is."""
    async with _liar(run) as liar:
        forged = {"parts": (Text("I confess."),), "visible_bytes": 10}
        stopped = {"finish_reason": FinishReason.STOP}
        lies = [
            (cause, await liar.lie(**{"render_recipe_digest": None, **changes}))
            for cause, changes in (
                (Cause.TEXT, forged),
                (Cause.ENDING, stopped),
                (Cause.TEXT, {**CLOSED, **forged}),
                (Cause.ENDING, {**CLOSED, **stopped}),
            )
        ]
        found = await liar.findings()
        for cause, lie in lies:
            _check(found[lie], Outcome.DIFFERS, cause)


@_case("HOST-77")
async def invented_without_recipes(run: UnderTest) -> None:
    """The tokens of an interrupted answer without recipes are not accepted; without any it is."""
    async with _liar(run) as liar:
        nothing = {**CLOSED, "parts": (), "visible_bytes": 0}
        none = {"token_ids": (), "usage": Usage()}
        invented = await liar.lie(**nothing, token_ids=liar.with_token())
        empty = await liar.lie(**nothing, **none)
        found = await liar.findings()
        _check_unjudged(found[invented], Cause.SAMPLING_UNKNOWN, liar.honest)
        _check(found[empty], Outcome.ACCEPTED)


@_case("HOST-77")
async def cancelled_without_a_cancel(run: UnderTest) -> None:
    """An answer is CANCELLED only where the log has a CANCEL; INTERRUPTED is always accepted."""
    async with _liar(run) as liar:
        ids = liar.honest.token_ids
        cancelled = await liar.lie(finish_reason=FinishReason.CANCELLED)
        interrupted = await liar.lie(finish_reason=FinishReason.INTERRUPTED)
        found = await liar.findings()
        _check(found[cancelled], Outcome.DIFFERS, Cause.ENDING)
        _check(found[interrupted], Outcome.ACCEPTED)
        equal(found[interrupted].output_tokens, len(ids), "the recorded tokens")


@_case("HOST-36", "HOST-76")
async def unknown_recipe(run: UnderTest) -> None:
    """Tokens of a recipe that the host does not know are not called changed."""
    async with _liar(run) as liar:
        judged = await liar.drawn_otherwise()
        unknown = [await liar.drawn_otherwise(sampler_digest=digest) for digest in (OTHER, None)]
        found = await liar.findings()
        _check(found[judged], Outcome.DIFFERS, Cause.TOKEN)
        for lie in unknown:
            _check_unjudged(found[lie], Cause.SAMPLING_UNKNOWN, liar.honest)


@_case("HOST-75", "HOST-76")
async def other_numerics(run: UnderTest) -> None:
    """Tokens of another numerics class get log probabilities instead of a verdict."""
    async with _liar(run, bitwise=False) as liar:
        lie = await liar.drawn_otherwise(numerics_class=OTHER)
        _check_unjudged((await liar.findings())[lie], Cause.OTHER_NUMERICS, liar.honest)


def _check_unjudged(found: Finding, cause: Cause, answer: Generation) -> None:
    _check(found, Outcome.UNDECIDED, cause)
    equal(len(found.logprobs), len(answer.token_ids), "the number of log probabilities")
    check(all(each <= 0 for each in found.logprobs), "a log probability is positive")


@_case("HOST-23")
async def other_rendering(run: UnderTest) -> None:
    """A context whose answer was rendered in another way refuses the next request."""
    async with _liar(run, bitwise=False) as liar:
        true, false = [await liar.sealed(), await liar.sealed(render_digest=OTHER)]
        await liar.talk.answer(await _behind(liar, true, await liar.told(true)))
        refused = await _behind(liar, false, await liar.told(false))
        await check_refused(liar.talk, refused, "TOKENS_FOREIGN")


@_case("HOST-23")
async def text_without_ids(run: UnderTest) -> None:
    """A context with an answer that has parts and no token ids refuses the next request."""
    async with _liar(run, bitwise=False) as liar:
        seal = await liar.sealed()
        answer = await liar.told(seal, token_ids=(), parts=(Text("Blue."),))
        await check_refused(liar.talk, await _behind(liar, seal, answer), "TOKENS_FOREIGN")


async def _behind(liar: _Liar, seal: EntryId, answer: EntryId) -> EntryId:
    """Ask the host under test to go on behind an answer of the other host."""
    body = liar.talk.request_body()
    return (await liar.talk.write(body, parents=(answer,), basis=seal)).id
