"""The weights of candidates: integers whose sums are exact (spec/07-host §3). Pure.

A weight is exp((logit - best) / temperature) in units of 2**-34, rounded to an integer and
held in float64. Up to 2**19 weights have an exact sum, so no sum depends on its order, and
a sampler may add them in blocks, by bins or in parallel. The exponential itself is
additions and products of float64, each rounded as IEEE 754 demands, and a table of 64
powers of two.
"""

import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Scores = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]

BITS = 34
"""The best candidate weighs 2**BITS."""
CANDIDATES_MAX = 2 ** (53 - BITS)
"""Most candidates whose weights have an exact sum."""
STEPS = 64
"""Entries of the table of powers per factor of two."""
STEPS_DOWN = STEPS * (BITS + 1)
"""A candidate this many steps below the best weighs nothing, nor does one further below."""

# 64 / ln 2, and the first coefficients of 2**(-r / 64): with c = ln 2 / 64, they are c,
# c**2 / 2 and c**3 / 6, each rounded to nearest.
_SCALE = float.fromhex("0x1.71547652b82fep+6")
_C1 = float.fromhex("0x1.62e42fefa39efp-7")
_C2 = float.fromhex("0x1.ebfbdff82c58fp-15")
_C3 = float.fromhex("0x1.c6b08d704a0c0p-23")

_LINE = 8
"""Numbers of a cache line."""

_LN2 = float.fromhex("0x1.62e42fefa39efp-1")
_SQRT_HALF = float.fromhex("0x1.6a09e667f3bcdp-1")
_LAST_DIVISOR = 21


def powers() -> list[float]:
    """Return 2**(i / 64) for i from 0 to 63, each rounded to nearest.

    The 64th root is six square roots of an integer, rounded down.
    """
    places = 120
    roots = [2 ** (i + STEPS * places) for i in range(STEPS)]
    for _ in range(6):
        roots = [math.isqrt(root) for root in roots]
    return [root / 2**places for root in roots]


def _table() -> Floats:
    """Return 2**(34 - n / 64) for n from 0 on.

    The table goes far beyond the last weight, so that few scores have to be clipped to it.
    """
    fractions = powers()
    steps = range(4 * STEPS_DOWN)
    return np.array([math.ldexp(fractions[-n % STEPS], -n // STEPS + BITS) for n in steps])


_TABLE = _table()


def span(temperature: float) -> float:
    """Return a difference of logits beyond which a candidate weighs nothing."""
    return (STEPS_DOWN + STEPS) * temperature / _SCALE


def _rows(number: int, count: int) -> Floats:
    """Return rows of at least `count` that begin at cache lines, where arithmetic is faster."""
    width = -(-count // _LINE) * _LINE
    floats = np.empty(number * width + _LINE)
    skipped = -floats.ctypes.data // floats.itemsize % _LINE
    return floats[skipped : skipped + number * width].reshape(number, width)


class Workspace:
    """Arrays that one thread reuses, since new ones would cost more than the arithmetic.

    What `weigh` returns is valid until its next call.
    """

    def __init__(self) -> None:
        """Start without memory; it grows with the vocabulary, 36 bytes per token."""
        self._rows = _rows(4, 0)
        self._scores = np.empty(0, np.float32)

    def scores(self, count: int) -> Scores:
        """Return memory for the scores of `count` tokens."""
        if count > len(self._scores):
            self._scores = np.empty(count, np.float32)
        return self._scores[:count]

    def weigh(self, scores: Scores, best: float, temperature: float) -> tuple[Floats, Ids]:
        """Return each candidate's weight, and its whole steps below the best.

        `best` is finite and the greatest score. A higher score has no more steps.
        """
        count = len(scores)
        if count > self._rows.shape[1]:
            self._rows = _rows(4, count)
        rest, whole, weights, last = (row[:count] for row in self._rows)
        steps = last.view(np.int64)
        scale = _SCALE / temperature
        np.copyto(rest, scores)
        np.subtract(best, rest, out=rest)
        rest *= scale
        if (best - float(scores.min())) * scale >= len(_TABLE) - 1:
            np.clip(rest, 0, len(_TABLE) - 1, out=rest)
        np.rint(rest, out=whole)
        rest -= whole
        np.copyto(steps, whole, casting="unsafe")
        power = np.take(_TABLE, steps, out=whole, mode="clip")  # "raise" would copy
        np.multiply(rest, -_C3, out=weights)
        weights += _C2
        weights *= rest
        weights -= _C1
        weights *= rest
        weights += 1.0
        weights *= power
        np.rint(weights, out=weights)
        return weights, steps


def natural_log(value: float) -> float:
    """Return ln of a number of at least 1, to about one unit in the last place.

    With value = m * 2**e and m near 1: ln value = e * ln 2 + 2 * artanh((m - 1) / (m + 1)).
    """
    mantissa, exponent = math.frexp(value)
    if mantissa < _SQRT_HALF:
        mantissa, exponent = mantissa * 2, exponent - 1
    ratio = (mantissa - 1) / (mantissa + 1)
    square, series = ratio * ratio, 0.0
    for divisor in range(_LAST_DIVISOR, 0, -2):
        series = series * square + 1 / divisor
    return exponent * _LN2 + (2 * ratio) * series


_BLOCK = 256


def locate(weights: Floats, word: int) -> int:
    """Return the first index whose running sum exceeds word / 2**64 of the whole."""
    sums = np.add.reduceat(weights, np.arange(0, len(weights), _BLOCK))
    ends = np.cumsum(sums)
    target = float(word * int(ends[-1]) >> 64)
    block = int(np.searchsorted(ends, target, side="right"))
    start = block * _BLOCK
    within = np.cumsum(weights[start : start + _BLOCK])
    rest = target - (ends[block] - sums[block])
    return start + int(np.searchsorted(within, rest, side="right"))
