"""sampler.json: logits, parameters, context and output index → weights and token.

A second implementation of the recipe, from its text alone: one candidate at a time, with
Python's own floats and integers, and no array library.
"""

import hashlib
import math
import random
import struct
from decimal import Decimal, localcontext
from typing import Any

BITS, STEPS = 34, 64
SCALE = float.fromhex("0x1.71547652b82fep+6")
C1 = float.fromhex("0x1.62e42fefa39efp-7")
C2 = float.fromhex("0x1.ebfbdff82c58fp-15")
C3 = float.fromhex("0x1.c6b08d704a0c0p-23")
FLOAT32_MAX = float.fromhex("0x1.fffffep+127")
INFINITY = math.inf
LN2 = float.fromhex("0x1.62e42fefa39efp-1")
SQRT_HALF = float.fromhex("0x1.6a09e667f3bcdp-1")


def _powers() -> list[float]:
    """Return 2^(i/64), rounded to nearest, for i from 0 to 63."""
    with localcontext() as context:
        context.prec = 60
        return [float(Decimal(2) ** (Decimal(i) / STEPS)) for i in range(STEPS)]


POWERS = _powers()

Vector = dict[str, Any]


def float32(value: float) -> float:
    """Round to the nearest float32; a number out of range becomes the outermost finite one."""
    if value == -INFINITY:
        return value
    bounded = max(-FLOAT32_MAX, min(FLOAT32_MAX, value))
    return float(struct.unpack("<f", struct.pack("<f", bounded))[0])


def scores_of(logits: list[float], given: Vector) -> list[float]:
    """Apply mask, least length, bias and penalties."""
    scores = list(logits)
    if given["mask"] is not None:
        bits = int.from_bytes(bytes.fromhex(given["mask"]), "little")
        scores = [s if bits >> i & 1 else -INFINITY for i, s in enumerate(scores)]
    if given["output_index"] < given["output_tokens_min"]:
        early = [-INFINITY if i in given["end_ids"] else s for i, s in enumerate(scores)]
        scores = early if max(early) > -INFINITY else scores
    s, context = given["sampling"], given["context"]
    window = context[-s["penalty_window"] :] if s["penalty_window"] else context
    bias = dict(s["logit_bias"])
    for token in {*window, *bias}:
        score = scores[token] + bias.get(token, 0.0)
        if token in window:
            score = _penalised(score, window.count(token), s)
        scores[token] = float32(score)
    return scores


def _penalised(score: float, count: int, s: Vector) -> float:
    if s["repetition_penalty"] not in (0, 1):
        penalty = s["repetition_penalty"]
        score = score / penalty if score > 0 else score * penalty
    return score - count * s["frequency_penalty"] - s["presence_penalty"]


def weight_of(score: float, best: float, temperature: float) -> int:
    """Return the weight of one candidate before any is dropped."""
    steps = (best - score) * (SCALE / temperature)
    if steps > STEPS * (BITS + 1):
        return 0
    whole = round(steps)
    rest = steps - whole
    octave, step = divmod(-whole, STEPS)
    power = math.ldexp(POWERS[step], octave + BITS)
    return round((((-C3 * rest + C2) * rest - C1) * rest + 1.0) * power)


def weights_of(scores: list[float], s: Vector) -> list[int]:
    """Return the weights from which the draw is made, by id; those dropped are 0."""
    best = max(scores)
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    if s["top_k"]:
        order = order[: s["top_k"]]
    weight = {i: weight_of(scores[i], best, s["temperature"]) for i in order}
    if 0 < s["top_p"] < 1:
        needed, prefix, mass = math.ceil(s["top_p"] * float(sum(weight.values()))), [], 0
        for i in order:
            if mass < needed:
                prefix.append(i)
                mass += weight[i]
        order = prefix
    least = s["min_p"] * 2.0**BITS
    kept = {i for i in order if weight[i] >= least}
    return [weight[i] if i in kept else 0 for i in range(len(scores))]


def word_of(seed: int, index: int) -> int:
    """Return the 64 bits that decide a draw."""
    data = b"antiphon/v1/draw" + seed.to_bytes(8, "little") + index.to_bytes(8, "little")
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "big")


def natural_log(value: float) -> float:
    """Return ln of a number of at least 1."""
    mantissa, exponent = math.frexp(value)
    if mantissa < SQRT_HALF:
        mantissa, exponent = mantissa * 2, exponent - 1
    ratio = (mantissa - 1) / (mantissa + 1)
    square, series = ratio * ratio, 0.0
    for divisor in range(21, 0, -2):
        series = series * square + 1 / divisor
    return exponent * LN2 + (2 * ratio) * series


def logprobs_of(logits: list[float], token: int, count: int) -> Vector | None:
    """Return the log probabilities recorded with a token."""
    if not count:
        return None
    best = max(logits)
    log_sum = natural_log(sum(weight_of(x, best, 1.0) for x in logits) / 2**BITS)
    top = sorted(range(len(logits)), key=lambda i: (-logits[i], i))[:count]
    own, *others = [(logits[i] - best) - log_sum for i in (token, *top)]
    return {"logprob": packed([own]), "top_ids": top, "top_logprobs": packed(others)}


def choose(logits: list[float], given: Vector) -> tuple[list[int] | None, int]:
    """Return weights, None where nothing is drawn, and the token."""
    scores = scores_of(logits, given)
    s = given["sampling"]
    if s["temperature"] == 0:
        return None, scores.index(max(scores))
    weights = weights_of(scores, s)
    target = word_of(int(s["seed"]), given["output_index"]) * sum(weights) >> 64
    running = 0
    for token, weight in enumerate(weights):
        running += weight
        if running > target:
            return weights, token
    raise AssertionError("a target is below the sum of the weights")


DEFAULTS: Vector = {
    "temperature": 0.0,
    "top_k": 0,
    "top_p": 0.0,
    "min_p": 0.0,
    "repetition_penalty": 0.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "penalty_window": 0,
    "seed": "0",
    "logit_bias": [],
}


def packed(logits: list[float]) -> str:
    """Return logits as hex of little-endian float32."""
    return struct.pack(f"<{len(logits)}f", *logits).hex()


def unpacked(data: str) -> list[float]:
    """Return logits from their hex."""
    return list(struct.unpack(f"<{len(data) // 8}f", bytes.fromhex(data)))


def _vector(
    name: str,
    comment: str,
    logits: list[float],
    *,
    context: list[int] | None = None,
    index: int = 0,
    mask: str | None = None,
    least: int = 0,
    count: int = 0,
    ends: list[int] | None = None,
    **sampling: object,
) -> Vector:
    given = {
        "logits": packed(logits),
        "mask": mask,
        "context": context or [],
        "output_index": index,
        "output_tokens_min": least,
        "end_ids": ends or [],
        "logprobs": count,
        "sampling": DEFAULTS | sampling,
    }
    exact = unpacked(packed(logits))
    weights, token = choose(exact, given)
    result = {"weights": weights, "token": token, "recorded": logprobs_of(exact, token, count)}
    return {"name": name, "comment": comment, **given, **result}


def _bf16(count: int, seed: int) -> list[float]:
    """Return logits with the 8 bits of bf16, many of them equal."""
    rng = random.Random(seed)
    values = [struct.unpack("<I", struct.pack("<f", rng.gauss(0, 4)))[0] for _ in range(count)]
    return [struct.unpack("<f", struct.pack("<I", v & 0xFFFF0000))[0] for v in values]


RAMP = [-i / 7 for i in range(200)]
TIES = [1.0, 3.0, 2.0, 3.0, -INFINITY, 3.0, 2.0, 0.0]
WARM: dict[str, object] = {"temperature": 0.9, "seed": "11"}


def _greedy() -> list[Vector]:
    return [
        _vector("greedy", "temperature 0: the greatest logit", [1.0, 2.5, 2.0]),
        _vector("greedy-ties", "of equal logits, the lowest id", TIES),
        _vector(
            "greedy-penalty",
            "penalties hold at temperature 0 too",
            TIES,
            context=[1, 3, 3, 7],
            repetition_penalty=1.5,
        ),
    ]


def _drawn() -> list[Vector]:
    far = [0.0, -24.2, -24.3, -30.0, -INFINITY, -3.0e38]
    return [
        _vector("plain", "all candidates, drawn in order of id", [2.0, 1.0, 0.0, 1.0], **WARM),
        _vector("index", "another index, another draw", [2.0, 1.0, 0.0, 1.0], index=7, **WARM),
        _vector(
            "seed", "the greatest seed", [2.0, 1.0, 0.0, 1.0], temperature=1.0, seed=str(2**64 - 1)
        ),
        _vector("equal", "equal logits, equal weights", [5.0] * 9, **WARM),
        _vector("ramp", "every step of the table of powers", RAMP, temperature=1.0, seed="5"),
        _vector("coldest", "the lowest temperature", _bf16(40, 1), temperature=0.001),
        _vector("hottest", "the highest temperature", _bf16(40, 1), temperature=100.0, seed="3"),
        _vector("far", "weights at and below one half round to 0", far, temperature=1.0),
        _vector("lone", "a vocabulary of one", [-7.5], temperature=1.0),
        _vector("zeros", "zeros are equal, whatever their sign", [-0.0, 0.0]),
        _vector("least", "a weight just above one half is 1", [0.0, -24.2571], temperature=1.0),
    ]


def _dropped() -> list[Vector]:
    return [
        _vector("top-k", "the first three", RAMP[:12], top_k=3, **WARM),
        _vector("top-k-ties", "of equal logits the lowest ids", TIES, top_k=2, **WARM),
        _vector("top-k-all", "more than there are", TIES, top_k=100, **WARM),
        _vector("top-p", "the shortest prefix with nine tenths", RAMP[:40], top_p=0.9, **WARM),
        _vector("top-p-ties", "a prefix that ends between equal logits", TIES, top_p=0.3, **WARM),
        _vector("top-p-first", "the first alone", RAMP[:40], top_p=1e-300, **WARM),
        _vector("top-p-one", "1 keeps all", TIES, top_p=1.0, **WARM),
        _vector("top-p-exact", "a sum that equals its share", [1.0] * 8, top_p=0.25, **WARM),
        _vector(
            "top-p-rounded-up",
            "half a unit more than the first: the second too",
            [1.0] * 3,
            top_p=(2**34 + 0.5) / (3 * 2**34),
            **WARM,
        ),
        _vector("top-p-product", "of ten alike a tenth is one, as the product is rounded",
                [1.0] * 10, top_p=0.1, **WARM),
        _vector("min-p-between", "half a unit more than the second weight", [1.0, 0.0],
                min_p=(weights_of([1.0, 0.0], DEFAULTS | WARM)[1] + 0.5) / 2**34, **WARM),
        _vector("min-p", "at least a tenth of the best", RAMP[:40], min_p=0.1, **WARM),
        _vector("min-p-one", "the best alone, with its equals", TIES, min_p=1.0, **WARM),
        _vector(
            "all",
            "top-k, then top-p of the rest, then min-p",
            _bf16(100, 2),
            top_k=30,
            top_p=0.8,
            min_p=0.05,
            **WARM,
        ),
    ]  # fmt: skip


def _penalties() -> list[Vector]:
    context = [0, 1, 1, 2, 2, 2, 5, 6, 6, 9]
    logits = _bf16(12, 3)
    low, high = [-FLOAT32_MAX, -1.0, 0.0], [FLOAT32_MAX, 1.0, 0.0]
    return [
        _vector(
            "repetition", "divides and multiplies", logits, context=context,
            repetition_penalty=1.3, **WARM,
        ),
        _vector(
            "frequency", "is subtracted per occurrence", logits, context=context,
            frequency_penalty=0.25, **WARM,
        ),
        _vector(
            "presence", "is subtracted once; a negative one is added", logits, context=context,
            presence_penalty=-0.7, **WARM,
        ),
        _vector(
            "window", "the last four tokens only", logits, context=context, penalty_window=4,
            repetition_penalty=1.3, frequency_penalty=0.25, presence_penalty=0.5, **WARM,
        ),
        _vector(
            "window-wide", "a window longer than the context", logits, context=context,
            penalty_window=100, frequency_penalty=0.3, **WARM,
        ),
        _vector(
            "rounded", "a changed logit is rounded to float32", [1.0, 1.0, 1.0], context=[0, 2],
            repetition_penalty=1.1, **WARM,
        ),
        _vector(
            "clamped-high", "and stays finite", high, context=[0], repetition_penalty=0.001,
            temperature=1.0,
        ),
        _vector(
            "clamped-low", "at both ends", low, context=[0], repetition_penalty=100.0,
            temperature=1.0,
        ),
        _vector(
            "absent", "a token of -infinity stays out", TIES, context=[4],
            presence_penalty=-100.0, **WARM,
        ),
        _vector(
            "penalty-order", "frequency first: 1 - 1 - 1e-18 is below 0", [1.0, 0.0], context=[0],
            frequency_penalty=1.0, presence_penalty=1e-18,
        ),
    ]  # fmt: skip


def _biased_and_masked() -> list[Vector]:
    context = [0, 1, 1, 2, 2, 2, 5, 6, 6, 9]
    logits = _bf16(12, 3)
    return [
        _vector(
            "bias", "is added before the penalties", logits, context=context,
            logit_bias=[[0, -2.5], [3, 4.0], [5, -1.0]], repetition_penalty=1.3, **WARM,
        ),
        _vector(
            "bias-ban", "far below the rest, nothing is left", TIES,
            logit_bias=[[1, -100.0], [3, -100.0]], **WARM,
        ),
        _vector("bias-greedy", "at temperature 0 too", TIES, logit_bias=[[2, 1.5]]),
        _vector(
            "early", "index 2 of at least 3: no token ends the answer", TIES, index=2, least=3,
            ends=[1, 3], **WARM,
        ),
        _vector(
            "late", "index 3: any may", TIES, index=3, least=3, ends=[1, 3], **WARM,
        ),
        _vector(
            "early-alone", "a grammar leaves nothing else: it may end", TIES, mask="02000000",
            least=3, ends=[1], **WARM,
        ),
        _vector("mask", "a grammar allows ids 0, 2 and 6", TIES, mask="45000000", **WARM),
        _vector("mask-one", "or one id", TIES, mask="80000000", **WARM),
        _vector("mask-wide", "bits beyond the vocabulary", TIES, mask="4500000100000000", **WARM),
    ]  # fmt: skip


def _recorded() -> list[Vector]:
    return [
        _vector("logprobs", "of the token, and of the first three", RAMP[:40], count=3, **WARM),
        _vector("logprobs-ties", "equal logits by id", TIES, count=5),
        _vector(
            "logprobs-raw", "of the logits before mask, bias, penalties and temperature", TIES,
            mask="45000000", context=[2], logit_bias=[[6, 50.0]], presence_penalty=9.0, count=8,
            temperature=0.2,
        ),
        _vector("logprobs-sure", "a certain token has 0", [50.0, 0.0, -5.0], count=2),
        _vector("logprobs-equal", "each of 200 alike", [7.0] * 200, count=20, **WARM),
    ]  # fmt: skip


RECIPE = (
    "float64 unless said; mask; no end before the least index unless nothing else is left; "
    "bias, then repetition (divides > 0, multiplies others), then frequency * count, then presence "
    "penalty, over the window; clamped and rounded to float32; "
    "temperature 0 greedy, lowest id; order (logit desc, id asc); top-k; "
    "t = (best - score) * (64 / ln 2 / temperature), n = rint(t), r = t - n, "
    "weight rint((((-c3 * r + c2) * r - c1) * r + 1) * 2^(34 - n / 64)); "
    "top-p: smallest prefix with sum >= ceil(p * sum); min-p: weight >= p * 2^34; "
    "lowest id whose running sum > floor(w * sum / 2^64); "
    "w = first 8 bytes, big-endian, of SHA-256('antiphon/v1/draw' seed index little-endian); "
    "logprobs (logit - best) - ln(sum / 2^34) of raw logits at temperature 1, float32; v3"
)
"""The text under the digest of the recipe."""


def build() -> dict[str, object]:
    """Return the file."""
    return {
        "file": "sampler",
        "spec": "spec/07-host §3",
        "comment": "`logits`: float32, little-endian. `mask`: one bit per id, as little-endian"
        " 32-bit words. `end_ids`: the tokens that end an answer. `weights`: by id, after all"
        " steps that drop candidates; null at temperature 0, where nothing is drawn. `recorded`:"
        " the log probabilities, as float32; null where `logprobs` is 0. `recipe`: the text that"
        " names the steps, in UTF-8, and its SHA-256.",
        "recipe": {
            "bytes": RECIPE.encode().hex(),
            "digest": hashlib.sha256(RECIPE.encode()).hexdigest(),
        },
        "vectors": [
            *_greedy(),
            *_drawn(),
            *_dropped(),
            *_penalties(),
            *_biased_and_masked(),
            *_recorded(),
        ],
    }
