"""Answers: drafts, limits, stops, seeds, usage, and cancellation."""

from antiphon.conformance.cases import NotApplicable, check, equal
from antiphon.conformance.io.host.service_calls import require_bitwise
from antiphon.conformance.io.host.talk import (
    CASES,
    SEEDED,
    Talk,
    UnderTest,
    ask_behind,
    frames_of,
    long_request,
)
from replica.conversation import Author, DraftStream, verify_draft
from replica.ids import EntryId
from replica.log import Cancel, Conflict, FinishReason, Generation, Role, text_of

_case = CASES.theme("answers").shows
PROFILES_MAX = 2
"""Most profiles asked for besides the default: each may have to be loaded."""
BRANCHES = ("Red or green?", "One or two?")


@_case("LINK-17", "LINK-18", "LINK-70", "HOST-16", "ENT-9")
async def drafts(run: UnderTest) -> None:
    """Drafts follow each other without a gap, are signed, and end in the answer."""
    async with run.talk() as talk:
        request, answer = await _drafted(talk)
        frames = frames_of(talk, request)
        stream = DraftStream(talk.held.id, request, frames[0].run)
        for frame in frames:
            verify_draft(frame, talk.host.key)
            check(stream.receive(frame), f"a draft at {frame.token_offset} does not follow")
        equal(stream.token_ids, answer.token_ids[: stream.token_count], "the drafted tokens")
        text = text_of(answer.parts).encode()
        check(text.startswith(stream.data), "the drafts show bytes that the answer has not")
        equal(answer.run, frames[0].run, "the run")
        if stream.token_count == len(answer.token_ids):
            equal(answer.draft_digest, stream.digest, "the draft digest")


async def _drafted(talk: Talk) -> tuple[EntryId, Generation]:
    """Return a request of which drafts came, and its answer.

    A host sends drafts once its seal is acked (spec/07-host §4): a short answer may be over
    before, and then a long one is asked for, which is cancelled.
    """
    request = await talk.ask(tokens=24, sampling=SEEDED)
    if not frames_of(talk, request):
        request, _ = await long_request(talk)
        await talk.cancel(request)
    return request, await talk.answer(request)


@_case("HOST-31")
async def length(run: UnderTest) -> None:
    """An answer ends at the limit that its request states, and not before its least length."""
    async with run.talk() as talk:
        request = await talk.ask(tokens=3, output_tokens_min=3)
        answer = await talk.answer(request)
        equal(len(answer.token_ids), 3, "the number of tokens")
        equal(FinishReason(answer.finish_reason), FinishReason.LENGTH, "the finish reason")


@_case("HOST-10", "HOST-11", "HOST-20")
async def same_seed(run: UnderTest) -> None:
    """Two requests with one seed get the same tokens from a bitwise host."""
    async with run.talk() as talk:
        await _require_bitwise(run, talk)
        first = await talk.ask(tokens=12, sampling=SEEDED)
        second = await talk.again(first, 12, sampling=SEEDED)
        tokens = [(await talk.answer(request)).token_ids for request in (first, second)]
        equal(tokens[1], tokens[0], "the tokens of the same request")


@_case("HOST-7", "HOST-11")
async def continuation(run: UnderTest) -> None:
    """An answer that goes on behind its limit equals that of a single run."""
    async with run.talk() as talk:
        await _require_bitwise(run, talk)
        whole = await talk.ask(tokens=8, sampling=SEEDED, output_tokens_min=8)
        first = await talk.again(whole, 4, sampling=SEEDED, output_tokens_min=4)
        await talk.answer(first)
        order = talk.held.order
        parent, basis = order.generation_of(first), order.seal_of[first]
        assert parent is not None, "it is answered"
        body = talk.request_body(4, sampling=SEEDED, output_tokens_min=4)
        second = (await talk.write(body, parents=(parent,), basis=basis)).id
        tokens = [(await talk.answer(one)).token_ids for one in (whole, first, second)]
        equal((*tokens[1], *tokens[2]), tokens[0], "the tokens of an answer in two parts")
        seal = talk.seal_of(second)
        equal(seal.tokens_per_entry[-1], 0, "the tokens of a request that continues a turn")


@_case("HOST-37", "ORD-7")
async def branches(run: UnderTest) -> None:
    """The answers on a branch are those of a conversation that has this branch alone."""
    both, one, other = [await _on_branches(run, *texts) for texts in (BRANCHES, *zip(BRANCHES))]
    if one == other:
        raise NotApplicable("the answers on both branches are the same")
    equal(both, [*one, *other], "the tokens of the answers on two branches")


async def _on_branches(run: UnderTest, *texts: str) -> list[tuple[int, ...]]:
    """Fork for each text behind one answer, and go on there; return the tokens of the answers."""
    async with run.talk() as talk:
        await _require_bitwise(run, talk)
        fields = {"tokens": 4, "sampling": SEEDED, "output_tokens_min": 4}
        first = await talk.ask(**fields)  # type: ignore[arg-type]  # as asked for above
        asked = [
            (await ask_behind(talk, first, text, Conflict.FORK, **fields))[1] for text in texts
        ]
        for request in asked:
            await talk.answer(request)
        behind = [
            (await ask_behind(talk, one, "Why?", Conflict.QUEUE, **fields))[1] for one in asked
        ]
        pairs = zip(asked, behind, strict=True)
        return [(await talk.answer(one)).token_ids for pair in pairs for one in pair]


@_case("HOST-16", "HOST-17")
async def stop_string(run: UnderTest) -> None:
    """A stop string ends the answer, and no byte of it is visible, in the drafts either."""
    async with run.talk() as talk:
        await _require_bitwise(run, talk)
        whole = await talk.ask(tokens=24, sampling=SEEDED)
        text = text_of((await talk.answer(whole)).parts)
        if len(text) < 3:
            raise NotApplicable("the model answers with less than three characters")
        stop = text[len(text) // 2 :][:2]
        stopped = await talk.again(whole, 24, sampling=SEEDED, stop=(stop,))
        answer, before = await talk.answer(stopped), text[: text.index(stop)]
        equal(text_of(answer.parts), before, "the text before the stop string")
        drafted = b"".join(draft.data for draft in talk.drafts if draft.request == stopped)
        check(before.encode().startswith(drafted), "a draft shows the beginning of a stop string")
        equal(FinishReason(answer.finish_reason), FinishReason.STOP, "the finish reason")
        count = len(answer.token_ids)
        same = await talk.answer(await talk.again(whole, count, sampling=SEEDED))
        equal(answer.token_ids, same.token_ids, "the tokens up to the end of the stop string")
        check(stop in text_of(same.parts), "the last tokens of the stop string are not recorded")


@_case("HOST-33")
async def stop_token(run: UnderTest) -> None:
    """A stop token ends the answer: it is recorded as the last one, and not shown."""
    async with run.talk() as talk:
        await _require_bitwise(run, talk)
        whole = await talk.ask(tokens=8, output_tokens_min=8)
        tokens = (await talk.answer(whole)).token_ids
        stop = tokens[3]
        answer = await talk.answer(await talk.again(whole, 8, stop_tokens=(stop,)))
        equal(answer.token_ids[-1], stop, "the last token")
        before = tokens.index(stop)
        equal(answer.token_ids, tokens[: before + 1], "the tokens")
        equal(FinishReason(answer.finish_reason), FinishReason.STOP, "the finish reason")
        text = ""
        if before:
            shorter = await talk.again(whole, before, output_tokens_min=before)
            text = text_of((await talk.answer(shorter)).parts)
        equal(text_of(answer.parts), text, "the text before the stop token")


@_case("HOST-34")
async def log_probabilities(run: UnderTest) -> None:
    """Log probabilities are recorded for each token, with those of the best candidates."""
    async with run.talk() as talk:
        answer = await talk.answer(await talk.ask(tokens=4, logprobs=2))
        equal(len(answer.logprobs), len(answer.token_ids), "the number of log probabilities")
        for token, stated in zip(answer.token_ids, answer.logprobs, strict=True):
            equal(len(stated.top_ids), 2, "the number of candidates")
            equal(stated.top_ids[0], token, "the best candidate of a greedy request")
            check(stated.logprob <= 0, "a log probability is positive")
            check(list(stated.top_logprobs) == sorted(stated.top_logprobs, reverse=True), "order")


@_case("HOST-35")
async def usage_and_recipes(run: UnderTest) -> None:
    """The usage counts the tokens of the context, and the answer states its recipes."""
    async with run.talk() as talk:
        await talk.ask()
        request = await talk.ask("Another one.")
        answer = await talk.answer(request)
        usage, node = answer.usage, talk.held.order.nodes[talk.held.order.seal_of[request]]
        prompt = sum(sum(each.seal.tokens_per_entry) for each in node.chain())
        equal(usage.prompt_tokens, prompt, "the prompt tokens")
        parts = usage.cached_tokens + usage.restored_tokens + usage.prefilled_tokens
        equal(parts, prompt, "the sum of cached, restored and prefilled tokens")
        equal(usage.output_tokens, len(answer.token_ids), "the output tokens")
        async with run.calls(talk) as calls:
            profile = (await calls.describe()).profiles[0]
        equal(answer.sampler_digest, profile.sampler_digest, "the digest of the sampling recipe")
        recipe = profile.render_recipe_digest
        equal(answer.render_recipe_digest, recipe, "the digest of the rendering recipe")
        equal(answer.numerics_class, profile.numerics_class, "the numerics class")


@_case("HOST-66")
async def profiles(run: UnderTest) -> None:
    """A request is answered by the profile it names, and one that names none by the default."""
    async with run.talk() as talk:
        await talk.say()
        default, *others = [profile.digest for profile in talk.host.profiles]
        first = await talk.request(1)
        asked = [(default, first)]
        for profile in (default, *others[:PROFILES_MAX]):
            asked.append((profile, await talk.again(first, 1, profile=profile)))
        for profile, request in asked:
            await talk.answer(request)
            equal(talk.seal_of(request).profile, profile, "the profile of the seal")


@_case("HOST-18")
async def cancel(run: UnderTest) -> None:
    """A CANCEL ends an answer that is being computed; the tokens shown are kept."""
    async with run.talk() as talk:
        await _cancelled(talk)


@_case("HOST-18")
async def cancel_of_another_member(run: UnderTest) -> None:
    """The CANCEL of any member that may write one ends an answer."""
    async with run.talk() as talk:
        await _cancelled(talk, await talk.other(Role.WRITER))


async def _cancelled(talk: Talk, author: Author | None = None) -> None:
    request, length = await long_request(talk)
    await talk.cancel(request, author)
    if len(_shown(talk, request)) > length // 2:
        raise NotApplicable("the host answers faster than a CANCEL arrives")
    answer = await talk.answer(request)
    equal(FinishReason(answer.finish_reason), FinishReason.CANCELLED, "the finish reason")
    shown = _shown(talk, request)
    equal(answer.token_ids[: len(shown)], shown, "the tokens that were shown")


@_case("HOST-18", "ORD-9")
async def cancel_before_its_turn(run: UnderTest) -> None:
    """A request that is cancelled while it waits gets a refusal without a seal: CANCELLED."""
    async with run.talk() as talk:
        first, _ = await long_request(talk)
        waiting = await talk.request()
        await talk.cancel(waiting)
        if talk.held.order.answer(first) is not None:
            raise NotApplicable("the host answers faster than a CANCEL arrives")
        await talk.cancel(first)
        await talk.answer(first)
        refusal = await talk.closed(waiting)
        equal(FinishReason(refusal.finish_reason), FinishReason.CANCELLED, "the finish reason")
        check(waiting not in talk.held.order.seal_of, "a cancelled request is sealed")


@_case("HOST-18")
async def cancel_with_two_parents(run: UnderTest) -> None:
    """A CANCEL that names another entry beside the request cancels nothing."""
    async with run.talk() as talk:
        first, _ = await long_request(talk)
        waiting = await talk.request()
        beside = talk.held.log.entries[first].header.parents[0]
        basis = talk.held.log.entries[waiting].header.basis
        await talk.write(Cancel(), parents=sorted((waiting, beside)), basis=basis)
        await talk.cancel(first)
        await talk.answer(first)
        finish = FinishReason((await talk.closed(waiting)).finish_reason)
        check(finish != FinishReason.CANCELLED, "a CANCEL with two parents is honoured")


async def _require_bitwise(run: UnderTest, talk: Talk) -> None:
    async with run.calls(talk) as calls:
        await require_bitwise(calls)


def _shown(talk: Talk, request: EntryId) -> tuple[int, ...]:
    return tuple(i for d in talk.drafts if d.request == request for i in d.token_ids)
