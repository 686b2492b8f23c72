"""Scalings of RoPE for longer contexts, as numbers that divide its frequencies. Pure."""

import math
from collections.abc import Iterable, Mapping

from model_host.engine.model_file import number
from model_host.errors import ModelArchitectureUnknown, ModelFileInvalid


def divisors(
    kind: str, options: Mapping[str, object], *, head_width: int, base: float
) -> tuple[float, ...]:
    """Return the divisors of the D / 2 frequencies under a scaling; none for the default.

    Raises ModelArchitectureUnknown for a scaling other than linear and llama3, and
    ModelFileInvalid for options that are not its own.
    """
    match kind:
        case "default" | "none" | "":
            return ()
        case "linear":
            return (number(options, "factor"),) * (head_width // 2)
        case "llama3":
            return _llama3(options, head_width, base)
    raise ModelArchitectureUnknown(f"The engine doesn't scale RoPE by the method {kind!r}.")


def _llama3(options: Mapping[str, object], head_width: int, base: float) -> tuple[float, ...]:
    """Divide long waves by the factor, short ones by 1, those between by a blend of both."""
    factor = number(options, "factor")
    low, high = number(options, "low_freq_factor"), number(options, "high_freq_factor")
    length = number(options, "original_max_position_embeddings")
    if not low < high:
        raise ModelFileInvalid("low_freq_factor isn't below high_freq_factor.")

    def divisor(index: int) -> float:
        turns: float = length / (2 * math.pi * base ** (2 * index / head_width))
        blend = min(max((turns - low) / (high - low), 0.0), 1.0)
        return 1 / ((1 - blend) / factor + blend)

    return tuple(divisor(index) for index in range(head_width // 2))


def combine(first: Iterable[float], second: Iterable[float]) -> tuple[float, ...]:
    """Return the products of two scalings, either of which may be empty.

    Raises ModelFileInvalid for a divisor that isn't positive.
    """
    one, other = tuple(first), tuple(second)
    both = tuple(a * b for a, b in zip(one, other, strict=True)) if one and other else one + other
    if not all(0 < value < math.inf for value in both):
        raise ModelFileInvalid("A divisor of the RoPE frequencies isn't a positive number.")
    return both
