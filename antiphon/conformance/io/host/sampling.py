"""Sampling: draws recomputed from log probabilities, least lengths, and guesses."""

import hashlib
import math

from antiphon.conformance.cases import NotApplicable, check, equal
from antiphon.conformance.io.host.service_calls import replayed, require_bitwise
from antiphon.conformance.io.host.talk import CASES, UnderTest
from replica.conversation import Outcome, ReplayMode
from replica.log import FinishReason, LogitBias, Sampling, TokenLogprobs, text_of

_case = CASES.theme("sampling").shows
CANDIDATES = 8
TEMPERATURE = 1.5
DRAWS = 10
TOLERANCE = 1e-4
"""Log probabilities are rounded: a draw so near to the bound of a token decides nothing."""
REPEATED = "one two three four five six seven " * 6


def drawn(seed: int, index: int) -> float:
    """Return the number of a draw, from 0 to 1 (spec/07-host §3)."""
    data = b"antiphon/v1/draw" + seed.to_bytes(8, "little") + index.to_bytes(8, "little")
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "big") / 2.0**64


def tokens_near(stated: TokenLogprobs, number: float, temperature: float) -> set[int]:
    """Return the tokens whose share of the weights, in order of ids, holds a number."""
    best = stated.top_logprobs[0]
    pairs = zip(stated.top_ids, stated.top_logprobs, strict=True)
    weights = {i: math.exp((score - best) / temperature) for i, score in pairs}
    whole, start, found = sum(weights.values()), 0.0, set()
    for token, weight in sorted(weights.items()):
        stop = start + weight / whole
        if start - TOLERANCE <= number < stop + TOLERANCE:
            found.add(token)
        start = stop
    return found


@_case("HOST-10", "HOST-11", "HOST-30")
async def draws(run: UnderTest) -> None:
    """Each token is the one that seed and output index draw from the stated candidates."""
    async with run.talk() as talk:
        first = None
        for seed in (3, 4):
            sampling = Sampling(temperature=TEMPERATURE, top_k=CANDIDATES, seed=seed)
            fields = {"sampling": sampling, "logprobs": CANDIDATES}
            if first is None:
                await talk.say()
                first = request = await talk.request(DRAWS, **fields)
            else:
                request = await talk.again(first, DRAWS, **fields)
            answer = await talk.answer(request)
            equal(len(answer.logprobs), len(answer.token_ids), "the number of log probabilities")
            for index, token in enumerate(answer.token_ids):
                stated = answer.logprobs[index]
                _check_order(stated)
                wanted = tokens_near(stated, drawn(seed, index), TEMPERATURE)
                check(token in wanted, f"token {token} at {index} is not the one drawn: {wanted}")


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
