"""How many rows of prompts fit beside sequences that decode (spec/07-host §5).

Pure: the driver measures the time of each step. The number depends on the machine, the
model and the lengths of the contexts, so it follows the measured times.
"""

SLOWER_MAX = 2.5
"""A step with prompts should take at most so many times as long as one without."""

ROWS_MIN = 16
"""A prompt makes progress even where a step without it is very short."""

_ROWS_FIRST = 64
"""Rows until a step with prompts and one without have been measured."""

_WEIGHT = 0.25
"""Weight of a new measurement in the average."""


class Pace:
    """The measured times of steps, as moving averages."""

    def __init__(self) -> None:
        """Start without measurements."""
        self._decode_s: float | None = None
        self._row_s: float | None = None

    def observe(self, seconds: float, *, decoding: int, prompt_rows: int) -> None:
        """Record the time of a step with `decoding` sequences and `prompt_rows` rows of prompts."""
        if decoding and not prompt_rows:
            self._decode_s = _average(self._decode_s, seconds)
        elif prompt_rows:
            beside = self._decode_s if decoding and self._decode_s is not None else 0.0
            row_s = max(seconds - beside, 0.0) / prompt_rows
            self._row_s = _average(self._row_s, row_s)

    def prompt_rows_max(self) -> int:
        """Return the most rows of prompts in a step beside sequences that decode."""
        if self._decode_s is None or not self._row_s:
            return _ROWS_FIRST
        return max(int((SLOWER_MAX - 1) * self._decode_s / self._row_s), ROWS_MIN)


def _average(before: float | None, now: float) -> float:
    return now if before is None else before + _WEIGHT * (now - before)
