"""Sampling: draws recomputed from log probabilities, least lengths, and guesses."""

from collections.abc import Sequence
from dataclasses import replace

from antiphon.conformance.cases import NotApplicable, check, equal
from antiphon.conformance.io.host.service_calls import (
    rendered,
    replayed,
    require_bitwise,
)
from antiphon.conformance.io.host.talk import CASES, Talk, UnderTest
from antiphon.conformance.naive_sampler import possible
from replica.conversation import Outcome, ReplayMode
from replica.log import FinishReason, Generation, LogitBias, Sampling, TokenLogprobs, text_of

_case = CASES.theme("sampling").shows
CANDIDATES = 8
STATED = 20
"""Most log probabilities that a request may ask for."""
TEMPERATURE = 1.5
DRAWS = 10
SEEDS = (3, 2**63 + 5)
"""The second is none of 32 bits, no double, and no signed number of 64 bits."""
WINDOW = 3
NUCLEI = ((0.3, 5), (0.6, 6), (0.9, 7))
LEAST = ((0.7, 8), (0.5, 9), (0.3, 10))
"""Values of top_p and of min_p, with seeds."""
REPETITION = 4.0
FAR, NEAR = 100.0, 60.0
"""Biases that are further apart, and further from 0, than the logits of a model are."""
REPEATED = "one two three four five six seven " * 6


@_case("HOST-10", "HOST-11", "HOST-30")
async def draws(run: UnderTest) -> None:
    """Each token is the one that seed and output index draw from the stated candidates."""
    async with run.talk() as talk:
        first = None
        for seed in SEEDS:
            sampling = Sampling(temperature=TEMPERATURE, top_k=CANDIDATES, seed=seed)
            fields = {"sampling": sampling, "logprobs": CANDIDATES}
            if first is None:
                await talk.say()
                first = request = await talk.request(DRAWS, **fields)
            else:
                request = await talk.again(first, DRAWS, **fields)
            answer = await talk.answer(request)
            equal(len(answer.logprobs), len(answer.token_ids), "the number of log probabilities")
            for stated in answer.logprobs:
                _check_order(stated)
            _judge(answer, sampling)


@_case("HOST-30")
async def fewer_candidates(run: UnderTest) -> None:
    """top_p and min_p leave out what the recipe says, of the candidates of top_k."""
    async with run.talk() as talk:
        whole = Sampling(temperature=2.0, top_k=16)
        await _sampled(talk, [replace(whole, top_p=p, seed=seed) for p, seed in NUCLEI])
        await _sampled(talk, [replace(whole, min_p=p, seed=seed) for p, seed in LEAST])


@_case("HOST-30")
async def penalties(run: UnderTest) -> None:
    """Penalties are subtracted for the tokens in the window, once or as often as they are there."""
    async with run.talk() as talk:
        few = Sampling(temperature=0.7, top_k=3, penalty_window=WINDOW)
        once, often = replace(few, presence_penalty=4.0), replace(few, frequency_penalty=2.5)
        wanted = [replace(one, seed=seed) for one in (once, often) for seed in (11, 12, 13)]
        decided = await _sampled(talk, wanted)
        if not decided:
            raise NotApplicable("no token in the window is among the candidates stated")


@_case("HOST-30")
async def repetition_penalty(run: UnderTest) -> None:
    """A repetition penalty divides a logit above 0 and multiplies others, behind the bias."""
    async with run.talk() as talk, run.calls(talk) as calls:
        first = await talk.ask(tokens=1, logprobs=2)
        tokens, _ = await rendered(talk, calls, talk.held.order.seal_of[first])
        last = next(ids[-1] for _, ids in reversed(tokens) if ids)
        stated = (await talk.answer(first)).logprobs[0]
        other = next(token for token in stated.top_ids if token != last)

        async def chosen(sampling: Sampling) -> int:
            request = await talk.again(first, 1, sampling=replace(sampling, penalty_window=1))
            return (await talk.answer(request)).token_ids[0]

        both = tuple(LogitBias(*one) for one in sorted(((last, FAR), (other, NEAR))))
        above, below = Sampling(logit_bias=both), Sampling(logit_bias=(LogitBias(last, -FAR),))
        # The presence penalty raises the one token in the window again.
        below = replace(below, presence_penalty=-FAR)
        equal(await chosen(above), last, "the token with the highest bias")
        divided = replace(above, repetition_penalty=REPETITION)
        equal(await chosen(divided), other, "the token beside one that is divided")
        raised = replace(below, repetition_penalty=1 / REPETITION)
        equal(await chosen(raised), last, "the token multiplied by less than 1")
        found = await chosen(replace(below, repetition_penalty=REPETITION))
        check(found != last, "a token whose logit is below 0 is chosen though it is multiplied")


@_case("HOST-30")
async def window_of_all(run: UnderTest) -> None:
    """A window of 0 has all tokens of the context, the earliest too."""
    async with run.talk() as talk, run.calls(talk) as calls:
        first = await talk.ask(f"Zebra. {REPEATED}", tokens=1, logprobs=STATED)
        tokens, _ = await rendered(talk, calls, talk.held.order.seal_of[first])
        context = [token for _, ids in tokens for token in ids]
        early = max(context, key=context[::-1].index)  # whose last place is the first
        stated = (await talk.answer(first)).logprobs[0]
        other = next((token for token in stated.top_ids if token not in context), None)
        if other is None:
            raise NotApplicable("all candidates stated are in the context")
        both = tuple(LogitBias(*one) for one in sorted(((early, FAR), (other, NEAR))))
        sampling = Sampling(logit_bias=both, presence_penalty=FAR)
        request = await talk.again(first, 1, sampling=sampling)
        equal((await talk.answer(request)).token_ids, (other,), "the token beside one penalized")


async def _sampled(talk: Talk, wanted: Sequence[Sampling]) -> int:
    """Ask with each sampling, and judge each token; return how many of these were penalized."""
    request, decided = None, 0
    for sampling in wanted:
        if request is None:
            request = await talk.ask(tokens=DRAWS, sampling=sampling, logprobs=STATED)
        else:
            request = await talk.again(request, DRAWS, sampling=sampling, logprobs=STATED)
        decided += _judge(await talk.answer(request), sampling)
    return decided


def _judge(answer: Generation, sampling: Sampling) -> int:
    """Check each token; return how many had a token of the window among their candidates."""
    begin, penalized = sampling.penalty_window, 0
    for index in range(begin, len(answer.token_ids)):
        stated, token = answer.logprobs[index], answer.token_ids[index]
        recent = answer.token_ids[index - begin : index]
        wanted = possible(stated, sampling, index, recent)
        if wanted is not None:
            check(token in wanted, f"token {token} at {index} is not one of {sorted(wanted)}")
            penalized += not {*recent}.isdisjoint(stated.top_ids)
    return penalized


def _check_order(stated: TokenLogprobs) -> None:
    """Check that candidates come by score descending, then id ascending."""
    pairs = list(zip(stated.top_ids, stated.top_logprobs, strict=True))
    ordered = sorted(pairs, key=lambda pair: (-pair[1], pair[0]))
    # Scores that differ may round to one log probability: ids decide only among equal scores.
    equal([p for _, p in pairs], [p for _, p in ordered], "the order of the candidates")


@_case("HOST-34")
async def log_probabilities_of_the_model(run: UnderTest) -> None:
    """Neither bias nor temperature nor candidates change the log probabilities stated."""
    async with run.talk() as talk, run.calls(talk) as calls:
        await require_bitwise(calls)
        greedy = await talk.ask(tokens=1, logprobs=4)
        plain = (await talk.answer(greedy)).logprobs[0]
        bias = (LogitBias(plain.top_ids[0], -5.0),)
        sampling = Sampling(temperature=0.3, top_k=2, min_p=0.5, seed=1, logit_bias=bias)
        again = await talk.again(greedy, 1, sampling=sampling, logprobs=4)
        stated = (await talk.answer(again)).logprobs[0]
        equal(stated.top_ids, plain.top_ids, "the candidates")
        equal(stated.top_logprobs, plain.top_logprobs, "their log probabilities")


@_case("HOST-31")
async def least_length(run: UnderTest) -> None:
    """Neither a stop token nor a stop string ends an answer before its least length."""
    async with run.talk() as talk, run.calls(talk) as calls:
        await require_bitwise(calls)
        whole = await talk.ask(tokens=8, output_tokens_min=8)
        plain = await talk.answer(whole)
        stop = plain.token_ids[2]
        fields = {"stop_tokens": (stop,), "output_tokens_min": 6}
        longer = await talk.answer(await talk.again(whole, 8, **fields))
        check(len(longer.token_ids) >= 6, "a stop token ends an answer before its least length")
        check(stop not in longer.token_ids[:6], "a token that ends the answer is chosen too soon")
        text = text_of(plain.parts)
        if not text:
            raise NotApplicable("the model answers without text")
        fields = {"stop": (text[:1],), "output_tokens_min": 8}
        same = await talk.answer(await talk.again(whole, 8, **fields))
        equal(same.token_ids, plain.token_ids, "the tokens beside a stop string that comes early")
        equal(FinishReason(same.finish_reason), FinishReason.LENGTH, "the finish reason")


@_case("HOST-60")
async def guesses(run: UnderTest) -> None:
    """An answer that repeats its context is the one computed token by token."""
    async with run.talk() as talk, run.calls(talk) as calls:
        await require_bitwise(calls)
        await talk.ask(REPEATED, tokens=60, output_tokens_min=60, logprobs=1)
        findings, _ = await replayed(talk, calls, ReplayMode.VERIFY)
        outcomes = [Outcome(finding.outcome) for finding in findings]
        equal(outcomes, [Outcome.ACCEPTED], "the outcome of a replay without guesses")
