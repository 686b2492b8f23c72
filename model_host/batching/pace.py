"""Measured times of steps, and what fits beside sequences that decode (spec/07-host §5).

Pure: the driver measures the time of each step. How many rows of prompts fit, and whether
guessed tokens pay, depends on the machine, the model and the lengths of the contexts, so both
follow the measured times.
"""

SLOWER_MAX = 2.5
"""A step with prompts should take at most so many times as long as one without."""

ROWS_MIN = 16
"""A prompt makes progress even where a step without it is very short."""

_ROWS_FIRST = 64
"""Rows until a step with prompts and one without have been measured."""

GUESS_COST_FIRST = 0.1
"""Time of a row with a guess, in units of a step without one, until it has been measured."""

_WEIGHT = 0.25
"""Weight of a new measurement in the average."""

_FORGETTING = 0.02
"""Weight of GUESS_COST_FIRST per step without guesses: a guess is tried again after a while."""


class Pace:
    """The measured times of steps, as moving averages."""

    def __init__(self) -> None:
        """Start without measurements."""
        self._decode_s: float | None = None
        self._row_s: float | None = None
        self._guess_cost = GUESS_COST_FIRST

    @property
    def guess_cost(self) -> float:
        """Return the time of a row with a guess, in units of a step without guesses."""
        return self._guess_cost

    def observe(self, seconds: float, *, decoding: int, prompt_rows: int, guesses: int = 0) -> None:
        """Record the time of a step.

        It has rows of `decoding` sequences that decode, `prompt_rows` rows of prompts, and
        `guesses` rows of guessed tokens, which are not computed beside prompts.
        """
        if guesses:
            if self._decode_s:
                cost = max(seconds / self._decode_s - 1, 0.0) / guesses
                self._guess_cost = _average(self._guess_cost, min(cost, 1.0))
        elif decoding and not prompt_rows:
            self._decode_s = _average(self._decode_s, seconds)
            self._guess_cost += _FORGETTING * (GUESS_COST_FIRST - self._guess_cost)
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
