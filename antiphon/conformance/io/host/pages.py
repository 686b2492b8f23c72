"""Pages: which conversations share them, who is shown them, and what is left to compute."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import takewhile

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from antiphon.conformance.cases import NotApplicable, Violation, check, equal
from antiphon.conformance.io.calls import PATIENCE_S
from antiphon.conformance.io.host.service_calls import (
    NOT_FOUND,
    RETRY_S,
    call,
    rendered,
    replayed,
    require_bitwise,
)
from antiphon.conformance.io.host.talk import CASES, Talk, UnderTest, require_context
from antiphon.v1 import host_pb2 as pb
from replica.conversation import Outcome, ReplayMode
from replica.errors import AntiphonError
from replica.ids import EntryId
from replica.io import ContextPages, HostCalls
from replica.log import Conflict, Message, Role, Speaker, Text, Usage, public_key

_case = CASES.theme("pages").shows
AUDIT_S = 20.0
"""Longest wait for the audit of a restored context, in seconds."""
RESTORES_MAX = 24
"""Tries until a stored prefix is restored: a host may find that computing is sooner (PAGE-14)."""


CONTEXT_TOKENS_MIN = 512
"""The shortest context that holds a text of several groups, answers and all."""


def _text(talk: Talk, words: int = 160) -> str:
    """Return a text that no other case has, of several groups of 64 tokens.

    Raises NotApplicable where the host's context holds none.
    """
    require_context(talk, CONTEXT_TOKENS_MIN)
    return f"{os.urandom(4).hex()} {'hello ' * words}"


async def _usage(talk: Talk, request: EntryId) -> Usage:
    return (await talk.answer(request)).usage


# --- looking at pages ---------------------------------------------------------------------


async def _pages(talk: Talk, calls: HostCalls, last: EntryId) -> ContextPages:
    """Return where the current context is, once the host has its last entry."""
    give_up_at = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up_at:
        try:
            found = await calls.pages(talk.held.id)
        except AntiphonError as error:
            if error.reason != NOT_FOUND:
                raise
        else:
            if found.entries and found.entries[-1].entry == last:
                return found
        await asyncio.sleep(RETRY_S)
    raise Violation("Pages never showed the entry written last")


async def _own_and_shared(talk: Talk, calls: HostCalls, last: EntryId) -> tuple[int, int]:
    """Return the tokens in memory, in pages of the conversation and in those of others alone."""
    entries = (await _pages(talk, calls, last)).entries
    return sum(each.cached_tokens for each in entries), sum(each.shared_tokens for each in entries)


@_case("HOST-82", "PAGE-8")
async def shown_to_the_first_owner(run: UnderTest) -> None:
    """Tokens in pages of other conversations are shown to the first owner, and prefilled to all."""
    async with run.talk() as first, run.talk(first.stranger) as second:
        text = _text(first)
        for talk in (first, second):
            await talk.other(Role.READER)
        await first.ask(text, tokens=1)
        said = (await second.say(text)).id
        async with run.calls(second) as owner, run.calls(second, second.stranger) as reader:
            _, shared = await _own_and_shared(second, owner, said)
            if not shared:
                raise NotApplicable("the host shares no pages between two conversations")
            seen = await _pages(second, reader, said)
            found = [(each.cached_tokens, each.shared_tokens) for each in seen.entries]
            equal(found, [(0, 0)] * len(found), "the tokens in memory that a reader is shown")
        usage = await _usage(second, await second.request(1))
        equal(usage.cached_tokens, 0, "the cached tokens that the log states")
        equal(usage.prefilled_tokens, usage.prompt_tokens, "the prefilled tokens")


@_case("PAGE-7", "CKPT-2", "CKPT-26")
async def domains(run: UnderTest) -> None:
    """Conversations share pages if both consent; others of other readers and owners do not."""
    other = run.another()
    async with run.talk(shares_pages=True) as first:
        text = _text(first)
        await first.ask(text, tokens=1)
        shared = {}
        for name, owner, consents in (
            ("consents", run, True),
            ("does not consent", run, False),
            ("has another owner", other, True),
        ):
            async with owner.talk(shares_pages=consents) as talk, owner.calls(talk) as calls:
                if owner is run:
                    await talk.other(Role.READER)
                _, shared[name] = await _own_and_shared(talk, calls, (await talk.say(text)).id)
    if not shared.pop("consents"):
        raise NotApplicable("the host shares no pages where both genesis consent")
    for name, tokens in shared.items():
        equal(tokens, 0, f"the shared tokens of a conversation that {name}")


@_case("PAGE-9")
async def readers_that_change(run: UnderTest) -> None:
    """When a reader joins, a conversation finds its pages, and those of the old readers do not."""
    async with run.talk() as moved, run.talk(moved.stranger) as left, run.calls(left) as calls:
        text = _text(moved)
        for talk in (moved, left):
            await talk.other(Role.READER)
        await moved.ask(text, tokens=1)
        said = (await left.say(text)).id
        _, before = await _own_and_shared(left, calls, said)
        if not before:
            raise NotApplicable("the host shares no pages between two conversations")
        await moved.grant(public_key(Ed25519PrivateKey.generate()), Role.READER)
        usage = await _usage(moved, await moved.ask("More.", tokens=1))
        check(usage.cached_tokens >= before, "a conversation lost its pages to a new reader")
        _, shared = await _own_and_shared(left, calls, said)
        equal(shared, 0, "the tokens found in pages of other readers")


@_case("PAGE-10")
async def evicted(run: UnderTest) -> None:
    """Evict reports all tokens that a conversation used, and others keep what they use."""
    async with run.talk() as first, run.talk() as second, run.calls(first) as calls:
        text = _text(first)
        for talk in (first, second):
            await talk.ask(text, tokens=2)
        kept = [await _own(talk, calls) for talk in (first, second)]
        if not kept[1]:
            raise NotApplicable("the host keeps no pages of an answered conversation")
        request = pb.EvictRequest(conversation=second.held.id)
        gone = (await call(calls, "Evict", request)).memory_tokens
        check(gone >= kept[1], f"Evict reports {gone} tokens of {kept[1]}")
        left = [await _own(talk, calls) for talk in (first, second)]
        equal(left, [kept[0], 0], "the tokens left in memory, of another conversation and of this")


async def _own(talk: Talk, calls: HostCalls) -> int:
    """Return the tokens of an answered conversation in pages of its own."""
    return (await _own_and_shared(talk, calls, _last(talk)))[0]


def _last(talk: Talk) -> EntryId:
    answer = talk.held.order.tips()[-1].generation
    assert answer is not None, "it is answered"
    return answer


# --- what is computed ---------------------------------------------------------------------


@_case("PAGE-1", "PAGE-2")
async def common_prefix(run: UnderTest) -> None:
    """Of a context that was changed, no more is found than what it has in common with the other."""
    async with run.talk() as talk, run.calls(talk) as calls:
        await require_bitwise(calls)
        text = _text(talk)
        first = await talk.ask(text + "red and green", tokens=4, logprobs=1)
        message = talk.held.log.entries[first].header.parents[0]
        place = talk.held.log.entries[message].header.parents
        body = Message(Speaker.USER, (Text(text + "red and blue"),))
        said = (await talk.write(body, parents=place)).id
        asked = talk.request_body(4, logprobs=1)
        second = (await talk.write(asked, parents=(said,), conflict=Conflict.FORK)).id
        usage = await _usage(talk, second)
        one, other = [await _ids(talk, calls, request) for request in (first, second)]
        pairs = zip(one, other, strict=False)
        common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        found = usage.cached_tokens + usage.restored_tokens
        check(found <= common, f"{found} tokens are found, where {common} are the same")
        again = await _usage(talk, await talk.again(second, 4, logprobs=1))
        check(again.prefilled_tokens > 0, "no token of a known context is left to compute")
        for mode in (ReplayMode.REBUILD, ReplayMode.VERIFY):
            findings, _ = await replayed(talk, calls, mode)
            outcomes = [Outcome(finding.outcome) for finding in findings]
            equal(outcomes, [Outcome.ACCEPTED] * 3, f"the outcomes of {mode.name}")


async def _ids(talk: Talk, calls: HostCalls, request: EntryId) -> list[int]:
    tokens, _ = await rendered(talk, calls, talk.held.order.seal_of[request])
    return [token for _, ids in tokens for token in ids]


@asynccontextmanager
async def stored(run: UnderTest) -> AsyncIterator[tuple[Talk, HostCalls, EntryId]]:
    """Answer a request and wait for its checkpoint. Raises NotApplicable where none is written."""
    async with run.talk() as talk, run.calls(talk) as calls:
        request = await talk.ask(_text(talk), tokens=2)
        give_up_at = time.monotonic() + PATIENCE_S
        while not await calls.list_checkpoints(talk.held.id):
            if time.monotonic() > give_up_at:
                raise NotApplicable("the host writes no checkpoints")
            await asyncio.sleep(RETRY_S)
        yield talk, calls, request


@_case("CKPT-7", "HOST-20", "HOST-121", "PAGE-15")
async def restored(run: UnderTest) -> None:
    """A stored prefix is restored and audited, one token is left, and the answer is the same."""
    async with stored(run) as (talk, calls, request):
        await require_bitwise(calls)
        first = await talk.answer(request)
        audited = (await calls.describe()).counters.groups_audited
        for _ in range(RESTORES_MAX):
            await _evict(talk, calls)
            again = await talk.answer(await talk.again(request, 2))
            if again.usage.restored_tokens:
                break
        else:
            raise NotApplicable("the host restores nothing, since computing is sooner")
        check(again.usage.prefilled_tokens > 0, "no token is left to compute behind a checkpoint")
        equal(again.token_ids, first.token_ids, "the tokens behind restored ones")
        await _audited(calls, audited)
        for _ in range(RESTORES_MAX):
            await _evict(talk, calls)
            warmed = await calls.warm(talk.held.id, talk.held.order.seal_of[request])
            equal(warmed.context_tokens, first.usage.prompt_tokens, "the tokens of the context")
            if warmed.restored_tokens:
                return
        raise Violation("Warm computes what a request restores")


@_case("HOST-26")
async def evicted_with_checkpoints(run: UnderTest) -> None:
    """Evict drops the checkpoints of the conversation where it asks for that, and else none."""
    async with stored(run) as (talk, calls, request):
        await _evict(talk, calls)
        check(await calls.list_checkpoints(talk.held.id), "Evict drops checkpoints unasked")
        evict = pb.EvictRequest(conversation=talk.held.id, checkpoints=True)
        dropped = (await call(calls, "Evict", evict)).checkpoints
        check(dropped > 0, "Evict reports no dropped checkpoint")
        equal(await calls.list_checkpoints(talk.held.id), [], "the checkpoints left behind Evict")
        again = await _usage(talk, await talk.again(request, 2))
        equal(again.restored_tokens, 0, "the tokens restored behind Evict")


async def _evict(talk: Talk, calls: HostCalls) -> None:
    await call(calls, "Evict", pb.EvictRequest(conversation=talk.held.id))


async def _audited(calls: HostCalls, before: int) -> None:
    """Wait until a group was computed again: others of a sample may be evicted before that."""
    give_up_at = time.monotonic() + AUDIT_S
    while (await calls.describe()).counters.groups_audited == before:
        check(time.monotonic() < give_up_at, "no sample of a restored context is computed again")
        await asyncio.sleep(RETRY_S)
