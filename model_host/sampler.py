"""The sampling recipe (spec/07-host): from logits, parameters and an index to a token. Pure.

    logits ─ mask ─ penalties ─ temperature ─ top-k ─ top-p ─ min-p ─ draw

All arithmetic is float64: additions, multiplications, divisions and comparisons alone,
each rounded as IEEE 754 demands, so that every machine chooses the same token. The
exponential is built from these too. Candidates are ordered by (logit descending, id
ascending), because the largest 16-bit logits are equal at one position of fifteen and no
library's top-k is stable. The draw depends on seed, candidate, phase and output index,
not on the batch or on earlier draws.
"""

import hashlib
import struct
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from model_host.engine_api import Logits
from model_host.errors import LogitsInvalid
from model_host.refusals import SamplingInvalid
from replica.log import Sampling

_Floats = npt.NDArray[np.float64]
_Ids = npt.NDArray[np.int64]

RECIPE = (
    "float64; mask; repetition (divides > 0, multiplies others), then frequency * count, then "
    "presence penalty, over the window; "
    "temperature 0 greedy, lowest id; order (logit desc, id asc); divide by temperature; "
    "weight exp(logit - best), none below best - 40; top-k; top-p: smallest prefix with mass "
    ">= p; min-p: weight >= p; first running sum > u * total; "
    "exp: n = rint(x * log2 e), r = (x - n * ln2 high) - n * ln2 low, "
    "Horner from 13 down to 1 of y * r / d + 1, times 2^n; "
    "u = top 53 bits, big-endian, of SHA-256('antiphon/v1/draw' seed candidate phase index "
    "little-endian); v2"
)
RECIPE_DIGEST = hashlib.sha256(RECIPE.encode()).digest()

PHASE_TOKEN = 0
"""Phase of the draw of an output token; other phases are for speculative methods."""

# exp(-40) is 4e-18, below the resolution of a draw; it bounds the number of candidates.
_SPAN = 40.0


# With a divisor this small every draw is greedy already; a smaller one would overflow.
_DIVISOR_MIN = 1e-3


def check_sampling(sampling: Sampling) -> None:
    """Raise SamplingInvalid, with its name, for a parameter out of range (spec/07-host §3)."""
    bounds: dict[str, tuple[float, float]] = {
        "temperature": (0.0, 100.0),
        "top_p": (0.0, 1.0),
        "min_p": (0.0, 1.0),
        "repetition_penalty": (0.0, 100.0),
        "presence_penalty": (-100.0, 100.0),
        "frequency_penalty": (-100.0, 100.0),
        "top_k": (0, 2**32 - 1),
        "penalty_window": (0, 2**32 - 1),
        "seed": (0, 2**64 - 1),
    }
    for name, (low, high) in bounds.items():
        value = getattr(sampling, name)
        if not low <= value <= high:  # also refuses a NaN
            raise SamplingInvalid(f"{name} is {value}, not between {low:g} and {high:g}.")
    for name in ("temperature", "repetition_penalty"):
        value = getattr(sampling, name)
        if 0 < value < _DIVISOR_MIN:
            raise SamplingInvalid(f"{name} is {value}, neither 0 nor {_DIVISOR_MIN:g} or more.")


def sampler_for(
    sampling: Sampling, candidate: int = 0
) -> Callable[[Logits, Sequence[int], int], int]:
    """Check the parameters; return `choose(logits, context, output_index)`.

    Raises SamplingInvalid.
    """
    check_sampling(sampling)

    def choose(logits: Logits, context: Sequence[int], output_index: int) -> int:
        return sample(logits, sampling, context, output_index, candidate=candidate)

    return choose


def sample(
    logits: Logits,
    sampling: Sampling,
    context: Sequence[int],
    output_index: int,
    *,
    candidate: int = 0,
    allowed: npt.NDArray[np.bool_] | None = None,
) -> int:
    """Choose the token at `output_index` from logits [V].

    `context` is every token before it, prompt and output; penalties apply to its last
    `penalty_window` tokens, 0 for all. `allowed` [V] is a grammar's mask. Raises
    LogitsInvalid.
    """
    scores = logits.astype(np.float64)
    if allowed is not None:
        scores[~allowed] = -np.inf
    best = scores.max()
    if not np.isfinite(best):  # NaN spreads through max
        raise LogitsInvalid("The logits have a NaN or an infinity, or no token is allowed.")
    _penalise(scores, sampling, context)
    if sampling.temperature == 0:
        return int(np.argmax(scores))  # the first of equal scores has the lowest id
    ids, weights = _candidates(scores, sampling)
    return int(ids[_pick(weights, uniform(sampling.seed, candidate, PHASE_TOKEN, output_index))])


def uniform(seed: int, candidate: int, phase: int, output_index: int) -> float:
    """Return the draw of one output index, in [0, 1), a multiple of 2**-53."""
    key = struct.pack("<QIIQ", seed, candidate, phase, output_index)
    word = hashlib.sha256(b"antiphon/v1/draw" + key).digest()[:8]
    return float(int.from_bytes(word, "big") >> 11) * 2.0**-53


def _penalise(scores: _Floats, sampling: Sampling, context: Sequence[int]) -> None:
    """Lower the scores of tokens in the window, in place."""
    repetition = sampling.repetition_penalty or 1.0
    if repetition == 1 and not sampling.presence_penalty and not sampling.frequency_penalty:
        return
    window = context[-sampling.penalty_window :] if sampling.penalty_window else context
    ids, counts = np.unique(np.asarray(window, np.int64), return_counts=True)
    seen = scores[ids]
    seen = np.where(seen > 0, seen / repetition, seen * repetition)
    seen = seen - counts * sampling.frequency_penalty - sampling.presence_penalty
    scores[ids] = seen


def _candidates(scores: _Floats, sampling: Sampling) -> tuple[_Ids, _Floats]:
    """Return the ids left to draw from, best first, and their weights."""
    with np.errstate(over="ignore"):  # an overflow is refused below
        scaled = scores / sampling.temperature
    best = scaled.max()
    if not np.isfinite(best):
        raise LogitsInvalid("The logits overflow at this temperature.")
    ids = np.flatnonzero(scaled >= best - _SPAN)
    if 0 < sampling.top_k < len(ids):
        # A threshold by value first, ties included: the sort below then orders few ids.
        threshold = np.partition(scaled[ids], -sampling.top_k)[-sampling.top_k]
        ids = ids[scaled[ids] >= threshold]
    ids = ids[np.argsort(-scaled[ids], kind="stable")]  # ids ascend already
    if sampling.top_k:
        ids = ids[: sampling.top_k]
    weights = exponential(scaled[ids] - scaled[ids[0]])
    if 0 < sampling.top_p < 1:
        mass = np.cumsum(weights)
        count = int(np.searchsorted(mass, sampling.top_p * mass[-1], side="left")) + 1
        ids, weights = ids[:count], weights[:count]
    if sampling.min_p > 0:
        keep = weights >= sampling.min_p
        ids, weights = ids[keep], weights[keep]
    return ids, weights


def _pick(weights: _Floats, draw: float) -> int:
    """Return the first index whose running sum exceeds the draw's share of the total."""
    # cumsum adds from left to right; sum() would add in pairs.
    mass = np.cumsum(weights)
    index = int(np.searchsorted(mass, draw * mass[-1], side="right"))
    return min(index, len(weights) - 1)


_LOG2_E = 1.4426950408889634
# ln 2 in two parts, the first with 21 trailing zero bits (fdlibm e_exp.c, ln2HI and ln2LO).
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10


def exponential(x: _Floats) -> _Floats:
    """Return e**x for x in [-40, 0], to about one unit in the last place.

    Range reduction and a Taylor polynomial, since numpy's exp differs in the last bit
    between instruction sets.
    """
    turns = np.rint(x * _LOG2_E)
    rest = (x - turns * _LN2_HIGH) - turns * _LN2_LOW
    result = np.ones_like(rest)
    for divisor in range(13, 0, -1):
        result = result * rest / divisor + 1.0
    return np.asarray(np.ldexp(result, turns.astype(np.int32)), np.float64)
