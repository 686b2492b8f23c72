"""The tokens that the recipe may choose, from stated log probabilities (spec/07-host §3).

Pure. Log probabilities are logits less one number, so whatever subtracts from logits or compares
them can be computed again: not repetition_penalty, which multiplies. They are rounded, so a draw
or a bound that is near to a border allows the tokens of both sides.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Sequence

from replica.log import Sampling, TokenLogprobs

TOLERANCE = 1e-4
"""Log probabilities, and shares of a weight, that are this near are equal."""


def drawn(seed: int, index: int) -> float:
    """Return the number of a draw, from 0 to 1."""
    data = b"antiphon/v1/draw" + seed.to_bytes(8, "little") + index.to_bytes(8, "little")
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "big") / 2.0**64


def possible(
    stated: TokenLogprobs, sampling: Sampling, index: int, recent: Sequence[int] = ()
) -> frozenset[int] | None:
    """Return the tokens that an output index may have; None where the candidates don't tell.

    `stated` are the first log probabilities of the model, `sampling` has a temperature, a top_k
    of less than these, and no penalties below 0; `recent` are the tokens in the window.
    """
    counts = Counter(recent)
    scores = {
        token: score - _penalty(sampling, counts[token])
        for token, score in zip(stated.top_ids, stated.top_logprobs, strict=True)
    }
    ordered = sorted(scores, key=lambda token: (-scores[token], token))
    kept, left_out = ordered[: sampling.top_k], ordered[sampling.top_k :]
    next_score = max([scores[token] for token in left_out] or [-math.inf])
    unstated = min(stated.top_logprobs) if any(counts[token] for token in ordered) else -math.inf
    if scores[kept[-1]] < max(next_score, unstated) + TOLERANCE:
        return None
    best = scores[kept[0]]
    weights = [(math.exp((scores[i] - best) / sampling.temperature), i) for i in kept]
    return frozenset(
        token
        for few in _of_top_p(weights, sampling.top_p)
        for left in _of_min_p(few, sampling.min_p)
        for token in _tokens_near(left, drawn(sampling.seed, index))
    )


def _penalty(sampling: Sampling, count: int) -> float:
    return sampling.presence_penalty * bool(count) + sampling.frequency_penalty * count


Weights = list[tuple[float, int]]
"""Weights with their tokens, the largest first."""


def _of_top_p(weights: Weights, top_p: float) -> Iterator[Weights]:
    whole = sum(weight for weight, _ in weights)
    for wanted in {top_p - TOLERANCE, top_p + TOLERANCE} if 0 < top_p < 1 else {math.inf}:
        few, held = Weights(), 0.0
        for weight, token in weights:
            if few and held >= wanted * whole:
                break
            few.append((weight, token))
            held += weight
        yield few


def _of_min_p(weights: Weights, min_p: float) -> Iterator[Weights]:
    for least in {min_p - TOLERANCE, min_p + TOLERANCE}:
        yield [(weight, token) for weight, token in weights if weight >= min(least, 1.0)]


def _tokens_near(weights: Weights, number: float) -> Iterator[int]:
    """Yield the tokens whose share of the weights, in order of ids, holds a number."""
    whole, start = sum(weight for weight, _ in weights), 0.0
    for weight, token in sorted(weights, key=lambda pair: pair[1]):
        stop = start + weight / whole
        if start - TOLERANCE <= number < stop + TOLERANCE:
            yield token
        start = stop
