"""The ranges of sampling parameters (spec/07-host §3).

Pure. A client checks before it writes, so that a number out of range is refused once and at
once; a host checks again, since it can't rely on clients.
"""

from collections.abc import Sequence
from itertools import pairwise

from replica.limits import LOGIT_BIASES_MAX
from replica.log.body import Sampling

DIVISOR_MIN = 1e-3
"""With a divisor this small every draw is greedy already; a smaller one would overflow."""
BIAS_MAX = 100.0
RANGES: dict[str, tuple[float, float]] = {
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


TOKENS_MAX = 2**32 - 1
"""The largest limit on output tokens that fits its field."""
TOKEN_ID_MAX = 2**32 - 1
"""The largest id of a token that fits its field; a vocabulary has fewer."""


def sampling_fault(sampling: Sampling) -> str | None:
    """Return the first parameter out of its range as text; None if all are within."""
    for name, (low, high) in RANGES.items():
        if fault := range_fault(name, getattr(sampling, name), low, high):
            return fault
    for name in ("temperature", "repetition_penalty"):
        value = getattr(sampling, name)
        if 0 < value < DIVISOR_MIN:
            return f"{name} is {value}, neither 0 nor {DIVISOR_MIN:g} or more"
    biased = [one.token_id for one in sampling.logit_bias]
    if fault := ids_fault("logit_bias", biased, LOGIT_BIASES_MAX):
        return fault
    for one in sampling.logit_bias:
        if fault := range_fault(
            f"logit_bias of token {one.token_id}", one.bias, -BIAS_MAX, BIAS_MAX
        ):
            return fault
    return None


def ids_fault(
    name: str, ids: Sequence[int], count_max: int, id_max: int = TOKEN_ID_MAX
) -> str | None:
    """Return what is wrong with a list of token ids, which ascend, as text; None if nothing."""
    if len(ids) > count_max:
        return f"{name} has {len(ids)} tokens, more than {count_max}"
    for one in ids:
        if not isinstance(one, int) or not 0 <= one <= TOKEN_ID_MAX:
            return f"{name} names {one!r}, which is no token"
    twice = [a for a, b in pairwise(ids) if a == b]
    if twice:
        return f"{name} names token {twice[0]} twice"
    if any(a > b for a, b in pairwise(ids)):
        return f"{name} is not in ascending order of ids"
    if ids and ids[-1] > id_max:
        return f"{name} names a token outside the vocabulary of {id_max + 1}"
    return None


def range_fault(name: str, value: float, low: float, high: float) -> str | None:
    """Return a value that is not between `low` and `high`, or is no number, as text."""
    kind, words = (int, "a whole number") if isinstance(low, int) else (int | float, "a number")
    if not isinstance(value, kind):
        return f"{name} is {value!r}, not {words}"
    if low <= value <= high:
        return None
    return f"{name} is {value}, not between {_shown(low)} and {_shown(high)}"


def _shown(bound: float) -> str:
    return f"{bound:,}" if isinstance(bound, int) else f"{bound:g}"
