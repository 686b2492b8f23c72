"""Distributions, and the measures of a process."""

import math
import random

import pytest

from replica.measures import Histogram, MeasureKind, Measures

BOUNDS = (0.1, 0.2, 0.5, 1.0)


def test_a_value_lies_in_the_bucket_whose_bound_it_does_not_exceed() -> None:
    histogram = Histogram(BOUNDS)
    for value in (0.0, 0.1, 0.10001, 0.5, 1.0, 1.1, math.inf):
        histogram.observe(value)
    assert histogram.counts == [2, 1, 1, 1, 2]
    assert histogram.total == 7


@pytest.mark.parametrize("seed", range(20))
def test_an_estimate_lies_in_the_bucket_of_the_true_quantile(seed: int) -> None:
    chance = random.Random(seed)
    values = sorted(chance.random() for _ in range(chance.randint(1, 200)))
    histogram = Histogram(BOUNDS)
    for value in values:
        histogram.observe(value)
    for share in (0.01, 0.5, 0.9, 1.0):
        true = values[max(0, math.ceil(share * len(values)) - 1)]
        found = histogram.quantile(share)
        assert found is not None
        low = max((b for b in (0.0, *BOUNDS) if b < true), default=0.0)
        high = min(b for b in BOUNDS if b >= true)
        assert low <= found <= high


def test_quantiles_without_values_and_beyond_all_bounds() -> None:
    histogram = Histogram(BOUNDS)
    assert histogram.quantile(0.5) is None
    histogram.observe(7.0)
    assert histogram.quantile(0.5) == BOUNDS[-1]


def test_a_measure_of_a_distribution_does_not_change_any_more() -> None:
    histogram, made = Histogram(BOUNDS), Measures("antiphon_test")
    made.histogram("step_seconds", "Time of a step.", histogram)
    histogram.observe(0.3)
    (measure,) = made.found
    assert measure.kind is MeasureKind.HISTOGRAM
    kept = measure.samples[""]
    assert isinstance(kept, Histogram)
    assert kept.total == 0


def test_a_counter_ends_with_total_and_a_label_has_its_values() -> None:
    made = Measures("antiphon_test")
    made.counter("steps", "Steps.", 3)
    made.gauge("tier_bytes", "Bytes.", {"memory": 1, "disk": 2}, "tier")
    steps, tiers = made.found
    assert (steps.name, steps.label, steps.samples) == ("antiphon_test_steps_total", "", {"": 3})
    assert (tiers.name, tiers.label, tiers.samples) == (
        "antiphon_test_tier_bytes", "tier", {"memory": 1, "disk": 2},
    )  # fmt: skip


def test_a_sum_has_the_values_of_both() -> None:
    one, other, both = Histogram(BOUNDS), Histogram(BOUNDS), Histogram(BOUNDS)
    for histogram, value in ((one, 0.15), (one, 7.0), (other, 0.15)):
        histogram.observe(value)
        both.observe(value)
    total = one + other
    assert (total.counts, total.sum) == (both.counts, both.sum)
    assert one.total == 2
