"""draw.json: logits and a request → every number of the draw, up to the token.

The seed of each vector is the first one with which every misreading listed draws another token.
"""

import math
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

from spec.vectors.make.build import pae, sha256
from spec.vectors.make.misread import misread
from spec.vectors.make.sampler import (
    DEFAULTS,
    INFINITY,
    float32,
    packed,
    scores_of,
    unpacked,
    weight_of,
    weights_of,
    word_of,
)

Vector = dict[str, Any]
Logits = list[float]
Reading = Callable[[Logits, Vector], int]
"""A way to choose the token."""

SEEDS_MAX = 2000
TAG = b"antiphon/v1/draw"


def order_of(scores: Logits) -> list[int]:
    """Return the ids in the order of candidates."""
    return sorted(range(len(scores)), key=lambda i: (-scores[i], i))


def drawn(weights: list[int], word: int, ids: list[int] | None = None) -> int:
    """Return the token that a word draws, over the ids in order of their number or as given."""
    target, running = word * sum(weights) >> 64, 0
    for token in range(len(weights)) if ids is None else ids:
        running += weights[token]
        if running > target:
            return token
    raise AssertionError("a target is below the sum of the weights")


def read(
    logits: Logits,
    given: Vector,
    *,
    scores: Callable[[Logits, Vector], Logits] = scores_of,
    weights: Callable[[Logits, Vector], list[int]] = weights_of,
    word: Callable[[int, int], int] = word_of,
    by_score: bool = False,
) -> int:
    """Choose the token, with the steps given in place of the right ones."""
    found, s = scores(logits, given), given["sampling"]
    if s["temperature"] == 0:
        return found.index(max(found))
    left = weights(found, s)
    ids = order_of(found) if by_score else None
    return drawn(left, word(int(s["seed"]), given["output_index"]), ids)


# --- misreadings -----------------------------------------------------------------------------


def _hashed(data: bytes, order: str = "big") -> int:
    return int.from_bytes(sha256(data)[:8], order)  # type: ignore[arg-type]


def _word(seed: str, index: str, width: int = 8) -> Callable[[int, int], int]:
    def word(number: int, at: int) -> int:
        pair = number.to_bytes(width, seed) + at.to_bytes(width, index)  # type: ignore[arg-type]
        return _hashed(TAG + pair)

    return word


def _le(seed: int, index: int) -> bytes:
    return seed.to_bytes(8, "little") + index.to_bytes(8, "little")


def _plain(scores: Logits, s: Vector, **changed: float) -> list[int]:
    return weights_of(scores, s | changed)


def _top_p_of_all(scores: Logits, s: Vector) -> list[int]:
    """Keep the share of all weights, and the first k of them."""
    wide = weights_of(scores, s | {"top_k": 0, "min_p": 0.0})
    narrow = weights_of(scores, s | {"top_p": 0.0})
    return [min(pair) for pair in zip(wide, narrow, strict=True)]


def _top_p_below(scores: Logits, s: Vector) -> list[int]:
    """Keep the longest prefix below the share."""
    left = weights_of(scores, s)
    kept = [i for i in order_of(scores) if left[i]]
    return [weight if i != kept[-1] else 0 for i, weight in enumerate(left)]


def _min_p_first(scores: Logits, s: Vector) -> list[int]:
    left = weights_of(scores, s | {"top_p": 0.0})
    needed, kept, mass = math.ceil(s["top_p"] * sum(left)), [0] * len(left), 0
    for i in order_of(scores):
        if mass < needed:
            kept[i] = left[i]
            mass += left[i]
    return kept


def _min_p_of_sum(scores: Logits, s: Vector) -> list[int]:
    left = weights_of(scores, s | {"min_p": 0.0})
    least = s["min_p"] * sum(left)
    return [weight if weight >= least else 0 for weight in left]


def _changed(logits: Logits, given: Vector, **sampling: object) -> Logits:
    return scores_of(logits, given | {"sampling": given["sampling"] | sampling})


def _after_temperature(logits: Logits, given: Vector) -> Logits:
    heat = given["sampling"]["temperature"]
    return [x * heat for x in scores_of([float32(x / heat) for x in logits], given)]


def _bias_last(logits: Logits, given: Vector) -> Logits:
    scores, bias = _changed(logits, given, logit_bias=[]), dict(given["sampling"]["logit_bias"])
    return [float32(score + bias.get(i, 0.0)) for i, score in enumerate(scores)]


def _always_divides(logits: Logits, given: Vector) -> Logits:
    window, penalty = set(given["context"]), given["sampling"]["repetition_penalty"]
    return [float32(x / penalty) if i in window else x for i, x in enumerate(logits)]


def _first_of_window(logits: Logits, given: Vector) -> Logits:
    """Look at the first tokens of the context."""
    wide = given["sampling"]["penalty_window"]
    return scores_of(logits, given | {"context": given["context"][:wide]})


def _once(logits: Logits, given: Vector) -> Logits:
    return scores_of(logits, given | {"context": sorted(set(given["context"]))})


def _scores(**changed: object) -> Reading:
    return partial(read, scores=lambda logits, given: scores_of(logits, given | changed))


def _sampled(scores: Callable[[Logits, Vector], Logits]) -> Reading:
    return partial(read, scores=scores)


DRAWN: dict[str, Reading] = {
    "seed big-endian": partial(read, word=_word("big", "little")),
    "first 8 bytes little-endian": partial(
        read, word=lambda seed, index: _hashed(TAG + _le(seed, index), "little")
    ),
    "the tag framed as PAE": partial(
        read, word=lambda seed, index: _hashed(pae(TAG.decode(), _le(seed, index)))
    ),
    "running sum by descending score": partial(read, by_score=True),
    "the greatest candidate": lambda logits, given: order_of(scores_of(logits, given))[0],
}
INDEXED: dict[str, Reading] = {
    "index big-endian": partial(read, word=_word("little", "big")),
    "index from the request on": lambda logits, given: read(logits, given | {"output_index": 0}),
    "seed alone": partial(
        read, word=lambda seed, _: _hashed(TAG + seed.to_bytes(8, "little"))
    ),
}  # fmt: skip


# --- vectors ---------------------------------------------------------------------------------


def traced(logits: Logits, given: Vector) -> Vector:
    """Return every number on the way to the token."""
    s, scores = given["sampling"], scores_of(logits, given)
    result: Vector = {"scores": packed(scores), "order": order_of(scores)}
    if s["temperature"] == 0:
        token = scores.index(max(scores))
        return result | {
            "weights": None, "kept": None, "sum": None, "pre_image": None, "word": None,
            "target": None, "token": token,
        }  # fmt: skip
    best = max(scores)
    kept, seed = weights_of(scores, s), int(s["seed"])
    word = word_of(seed, given["output_index"])
    return result | {
        "weights": [weight_of(x, best, s["temperature"]) for x in scores],
        "kept": kept,
        "sum": str(sum(kept)),
        "pre_image": (TAG + _le(seed, given["output_index"])).hex(),
        "word": str(word),
        "target": str(word * sum(kept) >> 64),
        "token": drawn(kept, word),
    }


def _vector(
    name: str,
    comment: str,
    logits: Logits,
    wrong: dict[str, Reading],
    *,
    context: list[int] | None = None,
    index: int = 0,
    mask: str | None = None,
    least: int = 0,
    ends: list[int] | None = None,
    seeds: int = 0,
    **sampling: object,
) -> Vector:
    exact = unpacked(packed(logits))
    for seed in count(seeds):
        given = {
            "logits": packed(logits),
            "mask": mask,
            "context": context or [],
            "output_index": index,
            "output_tokens_min": least,
            "end_ids": ends or [],
            "sampling": DEFAULTS | sampling | {"seed": str(seed)},
        }
        trace = traced(exact, given)
        others = {reading: choose(exact, given) for reading, choose in wrong.items()}
        if trace["token"] not in others.values():
            result = {"misread": misread(trace["token"], others)}
            return {"name": name, "comment": comment, **given, **trace, **result}
        assert seed < seeds + SEEDS_MAX, f"{name}: no seed tells all misreadings from the right one"
    raise AssertionError


LOGITS = [1.5, -0.25, 0.75, 2.0, 0.75, -INFINITY, 1.0, 2.0, -1.0, 0.0, 1.25, 0.5]
WARM: dict[str, object] = {"temperature": 0.9}
SEEN = [3, 3, 7, 0, 10, 3, 6, 6]


def _chosen() -> list[Vector]:
    last: Reading = lambda logits, _: len(logits) - 1 - logits[::-1].index(max(logits))  # noqa: E731
    return [
        _vector("greedy", "temperature 0: of equal scores, the lowest id", LOGITS,
                {"of equal scores, the highest id": last}),
        _vector("greedy-penalty", "temperature 0 comes after the penalties", LOGITS,
                {"no penalties": lambda logits, _: logits.index(max(logits))}, context=[3, 7],
                presence_penalty=1.0),
        _vector("plain", "all candidates", LOGITS, DRAWN, **WARM),
        _vector("index", "the ninth token of a turn, also in a continued answer", LOGITS,
                DRAWN | INDEXED, index=8, **WARM),
        _vector("index-wide", "an index of more than one byte", LOGITS, DRAWN | INDEXED,
                index=70_000, **WARM),
        _vector("seed-wide", "a seed of 8 bytes", LOGITS,
                DRAWN | {"seed of 4 bytes": partial(read, word=lambda seed, index: word_of(
                    seed % 2**32, index))}, seeds=2**64 - 500, **WARM),
        _vector("temperature", "divides differences of scores", LOGITS,
                DRAWN | {"temperature multiplies": partial(read, weights=lambda scores, s:
                         weights_of(scores, s | {"temperature": 1 / s["temperature"]}))},
                temperature=1.75),
    ]  # fmt: skip


def _dropped() -> list[Vector]:
    return [
        _vector("top-k", "of the equal second places, the lower id stays", LOGITS, {
            "all equals of the last stay": partial(read, weights=lambda scores, s:
                _plain(scores, s, top_k=s["top_k"] + 1)),
            "no top-k": partial(read, weights=partial(_plain, top_k=0)),
        }, top_k=6, **WARM),
        _vector("top-p", "the prefix that reaches seven tenths", LOGITS, {
            "the prefix that stays below": partial(read, weights=_top_p_below),
            "no top-p": partial(read, weights=partial(_plain, top_p=0.0)),
        }, top_p=0.7, **WARM),
        _vector("top-k-top-p", "top-p is a share of the weights that top-k left", LOGITS, {
            "a share of all weights": partial(read, weights=_top_p_of_all),
        }, top_k=6, top_p=0.8, **WARM),
        _vector("min-p", "a share of the best weight, which is 2^34", LOGITS, {
            "a share of the sum": partial(read, weights=_min_p_of_sum),
            "no min-p": partial(read, weights=partial(_plain, min_p=0.0)),
        }, min_p=0.2, **WARM),
        _vector("all", "top-k, then top-p, then min-p", LOGITS, {
            "min-p before top-p": partial(read, weights=_min_p_first),
            "no min-p": partial(read, weights=partial(_plain, min_p=0.0)),
        }, index=3, top_k=9,
                top_p=0.9, min_p=0.25, **WARM),
    ]  # fmt: skip


def _changed_logits() -> list[Vector]:
    bias = [[1, 2.5], [3, -1.5], [6, 0.5]]
    return [
        _vector("penalties", "repetition, then frequency and presence", LOGITS, {
            "after the division by temperature": _sampled(_after_temperature),
            "frequency once per token": _sampled(_once),
        }, context=SEEN, repetition_penalty=1.5, frequency_penalty=0.5, presence_penalty=-0.25,
            temperature=0.5),
        _vector("repetition", "a score below 0 is multiplied", LOGITS, {
            "always divides": _sampled(_always_divides),
        }, context=[1, 8, 1, 9], repetition_penalty=8.0, temperature=2.0),
        _vector("window", "the last three tokens of prompt and output", LOGITS, {
            "the first three": _sampled(_first_of_window),
            "all": _sampled(partial(_changed, penalty_window=0)),
        }, context=SEEN, penalty_window=3, presence_penalty=2.0, **WARM),
        _vector("bias", "comes before the penalties", LOGITS, {
            "behind the penalties": _sampled(_bias_last),
            "no bias": _sampled(partial(_changed, logit_bias=[])),
        }, context=[1, 3, 1, 6], logit_bias=bias, repetition_penalty=3.0, **WARM),
        _vector("mask", "a grammar allows ids 0, 1, 3, 6 and 9", LOGITS, {
            "id 0 is the highest bit of a byte": _scores(mask="d2400000"),
            "no mask": _scores(mask=None),
        }, mask="4b020000", **WARM),
        _vector("least", "index 1 of at least 2: ids 3 and 7 would end the answer", LOGITS, {
            "an answer may end": _scores(output_tokens_min=0),
        }, index=1, least=2, ends=[3, 7], **WARM),
        _vector("least-reached", "index 2 of at least 2: they may", LOGITS, {
            "one token more than that": _scores(output_tokens_min=3),
        }, index=2, least=2, ends=[3, 7], **WARM),
    ]  # fmt: skip


def build() -> dict[str, object]:
    """Return the file."""
    return {
        "file": "draw",
        "spec": "spec/07-host §3",
        "comment": "The numbers of a draw, in the order in which they arise. `logits`, `mask` and"
        " `end_ids` are as in sampler.json. `scores`: float32, little-endian. `order`: ids by"
        " score. `weights`: by id, before any is dropped; `kept`: those left, 0 where dropped;"
        " `sum`: of those left. `pre_image`: what is hashed for `word`, the first 8 bytes."
        " `target`: what the running sum must exceed. All from `weights` to `target` are null at"
        " temperature 0. `misread`: the token that a misreading would choose.",
        "vectors": [*_chosen(), *_dropped(), *_changed_logits()],
    }
