"""Restore a stored prefix, or compute it? Whichever is sooner by measured rates. Pure.

    restore   L + n b / R      finding it, then reading, checking and copying its bytes
    compute   n t              one more row of a prompt takes t

for n tokens of b bytes each. R is measured as a whole, since reading, checking and copying
are one pass over the bytes. Both depend on the machine and the model, and R on the disk:
one under load or behind a network may be slower than a small model.
"""

from dataclasses import dataclass

_WEIGHT = 0.25
"""Weight of a new measurement in the average."""
_FORGET = 0.8
"""Factor of the restoring times after a decision to compute, so that it is tried again."""
ROWS_MIN = 64
"""Fewer rows of a prompt in a step say little about the time of one more."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Measured times, in seconds; None for one that has not been measured."""

    find_s: float | None = None
    """L: to find a checkpoint, whatever its length."""
    byte_s: float | None = None
    """1 / R: to restore one byte."""
    row_s: float | None = None
    """t: to compute one token of a prompt."""


def is_restoring_sooner(rates: Rates, tokens: int, bytes_per_token: int) -> bool:
    """Say whether `tokens` tokens are sooner restored than computed; yes if nobody knows."""
    if rates.find_s is None or rates.byte_s is None or rates.row_s is None:
        return True
    restoring = rates.find_s + tokens * bytes_per_token * rates.byte_s
    return restoring <= tokens * rates.row_s


class RestoreCost:
    """The rates of a host, as moving averages."""

    def __init__(self) -> None:
        """Start without measurements."""
        self.rates = Rates()

    def observe_restored(self, *, find_s: float, load_s: float, nbytes: int) -> None:
        """Record the times of one restore of at least one byte."""
        rates = self.rates
        self.rates = Rates(
            _average(rates.find_s, find_s), _average(rates.byte_s, load_s / nbytes), rates.row_s
        )

    def observe_computed(self, *, seconds: float, rows: int) -> None:
        """Record the time of a step that computed rows of prompts alone."""
        if rows >= ROWS_MIN:
            rates = self.rates
            self.rates = Rates(rates.find_s, rates.byte_s, _average(rates.row_s, seconds / rows))

    def set_row(self, row_s: float | None) -> None:
        """Use a time of one token that somebody else measured."""
        self.rates = Rates(self.rates.find_s, self.rates.byte_s, row_s)

    def decide(self, tokens: int, bytes_per_token: int) -> bool:
        """Say whether to restore. Each refusal makes the next one less likely."""
        if is_restoring_sooner(self.rates, tokens, bytes_per_token):
            return True
        rates = self.rates
        assert rates.find_s is not None and rates.byte_s is not None, "or restoring is tried"
        self.rates = Rates(rates.find_s * _FORGET, rates.byte_s * _FORGET, rates.row_s)
        return False


def _average(before: float | None, now: float) -> float:
    return now if before is None else before + _WEIGHT * (now - before)
