"""Measurements of a process, for its operator: counts, levels, distributions.

Pure. A core counts in plain numbers. Whoever asks gets a list of `Measure`, under the names
that they have at the Prometheus endpoint (docs/operating.md).
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate
from operator import add


class MeasureKind(StrEnum):
    """The kinds of a measure, by the words that Prometheus has for them."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Histogram:
    """A distribution: how many values lie in each bucket, and their sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Iterable[float]) -> None:
        """Start empty; a bucket has the values above the bound before it, up to its own."""
        self.bounds = tuple(bounds)
        assert list(self.bounds) == sorted(set(self.bounds)), "bounds ascend"
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Add one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @classmethod
    def of(cls, bounds: Iterable[float], counts: Iterable[int], total: float) -> "Histogram":
        """Return a distribution that was counted elsewhere; `total` is the sum of its values."""
        made = cls(bounds)
        made.counts, made.sum = list(counts), total
        assert len(made.counts) == len(made.bounds) + 1, "the last count is beyond all bounds"
        return made

    def copy(self) -> "Histogram":
        """Return one that does not change any more."""
        return Histogram.of(self.bounds, self.counts, self.sum)

    def __add__(self, other: "Histogram") -> "Histogram":
        """Return the distribution of the values of both, which have the same bounds."""
        assert self.bounds == other.bounds, "buckets are added one by one"
        counts = map(add, self.counts, other.counts)
        return Histogram.of(self.bounds, counts, self.sum + other.sum)

    @property
    def total(self) -> int:
        """The number of values."""
        return sum(self.counts)

    def quantile(self, share: float) -> float | None:
        """Estimate the value that a share of all values do not exceed; None without values.

        Within a bucket values are taken to be spread evenly. Beyond all bounds it is the last.
        """
        wanted = share * self.total
        if not self.total:
            return None
        low = 0.0
        for bound, count, below in zip(
            self.bounds, self.counts, accumulate(self.counts, initial=0), strict=False
        ):
            if count and below + count >= wanted:
                return low + (bound - low) * max(0.0, wanted - below) / count
            low = bound
        return low


Value = int | float | Histogram


@dataclass(frozen=True, slots=True)
class Measure:
    """One measure of a process at one moment."""

    name: str
    """Begins with `antiphon_`; ends with its unit, and `_total` for a counter."""
    help: str
    kind: MeasureKind
    samples: Mapping[str, Value]
    """By the value of `label`; by the empty string where there is none."""
    label: str = ""


@dataclass(frozen=True, slots=True)
class Measures:
    """Builds the measures of one process, in the order of its documentation."""

    prefix: str
    found: list[Measure] = field(default_factory=list)

    def counter(
        self, name: str, help_: str, value: float | Mapping[str, float], label: str = ""
    ) -> None:
        """Add a count of events since start."""
        self._add(MeasureKind.COUNTER, f"{name}_total", help_, value, label)

    def gauge(
        self, name: str, help_: str, value: float | Mapping[str, float], label: str = ""
    ) -> None:
        """Add a level."""
        self._add(MeasureKind.GAUGE, name, help_, value, label)

    def histogram(self, name: str, help_: str, value: Histogram) -> None:
        """Add a distribution."""
        self._add(MeasureKind.HISTOGRAM, name, help_, value.copy(), "")

    def _add(
        self,
        kind: MeasureKind,
        name: str,
        help_: str,
        value: Value | Mapping[str, float],
        label: str,
    ) -> None:
        samples = value if isinstance(value, Mapping) else {"": value}
        assert bool(label) == isinstance(value, Mapping), "values of a label are given by it"
        self.found.append(Measure(f"{self.prefix}_{name}", help_, kind, dict(samples), label))
