"""The ranges of sampling parameters (spec/07-host §3).

Pure. A client checks before it writes, so that a number out of range is refused once and at
once; a host checks again, since it can't rely on clients.
"""

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


def sampling_fault(sampling: Sampling) -> str | None:
    """Return the first parameter out of its range as text; None if all are within."""
    for name, (low, high) in RANGES.items():
        if fault := range_fault(name, getattr(sampling, name), low, high):
            return fault
    for name in ("temperature", "repetition_penalty"):
        value = getattr(sampling, name)
        if 0 < value < DIVISOR_MIN:
            return f"{name} is {value}, neither 0 nor {DIVISOR_MIN:g} or more"
    for one in sampling.logit_bias:
        if fault := range_fault(
            f"logit_bias of token {one.token_id}", one.bias, -BIAS_MAX, BIAS_MAX
        ):
            return fault
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
