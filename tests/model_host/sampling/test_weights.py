"""Weights: integers with exact sums, from an exponential that every machine computes alike."""

import math
from fractions import Fraction

import numpy as np
import pytest

from model_host.sampling.weights import (
    BITS,
    CANDIDATES_MAX,
    STEPS,
    STEPS_DOWN,
    Workspace,
    locate,
    natural_log,
    powers,
    span,
)
from spec.vectors.make import sampler as naive


def exact_power(exponent: Fraction) -> Fraction:
    """Return e**exponent to 30 digits: halve, sum the series, square back."""
    small, term, total = exponent / 64, Fraction(1), Fraction(1)
    for n in range(1, 30):
        term = (term * small / n).limit_denominator(10**40)
        total += term
    for _ in range(6):
        total = (total * total).limit_denominator(10**40)
    return total


def test_the_powers_are_the_nearest_numbers_there_are() -> None:
    for i, power in enumerate(powers()):
        below = Fraction(power) - Fraction(math.ulp(power)) / 2
        above = Fraction(power) + Fraction(math.ulp(power)) / 2
        assert below**STEPS < 2**i < above**STEPS
    assert powers() == naive.POWERS


@pytest.mark.parametrize("temperature", [0.001, 0.3, 1.0, 7.0, 100.0])
def test_a_weight_is_the_exponential_to_a_unit_and_a_half(temperature: float) -> None:
    rng = np.random.default_rng(2)
    scores = (25 - rng.uniform(0, 26 * temperature, 150)).astype(np.float32)
    scores[7] = best = 25.0
    weights, _ = Workspace().weigh(scores, best, temperature)
    for score, weight in zip(scores.tolist(), weights.tolist(), strict=True):
        exponent = (Fraction(score) - Fraction(best)) / Fraction(temperature)
        exact = exact_power(exponent) * 2**BITS
        assert abs(Fraction(weight) - exact) < Fraction(3, 2)
        assert weight == naive.weight_of(score, best, temperature)
    assert weights[7] == 2**BITS


def test_a_higher_score_has_no_lower_weight_and_no_more_steps() -> None:
    scores = np.linspace(-30, 0, 200_001, dtype=np.float32)
    weights, steps = Workspace().weigh(scores, 0.0, 1.0)
    assert (np.diff(weights) >= 0).all()
    assert (np.diff(steps) <= 0).all()
    assert (weights[steps > STEPS_DOWN] == 0).all()


@pytest.mark.parametrize("temperature", [0.001, 1.0, 100.0])
def test_beyond_the_span_a_candidate_weighs_nothing(temperature: float) -> None:
    far = [np.float32(5 - span(temperature)), -3e38, -np.inf]
    weights, _ = Workspace().weigh(np.array([5, *far], np.float32), 5.0, temperature)
    assert weights.tolist() == [2**BITS, 0, 0, 0]


def test_sums_do_not_depend_on_their_order() -> None:
    scores = np.zeros(CANDIDATES_MAX, np.float32)
    weights, _ = Workspace().weigh(scores, 0.0, 1.0)
    assert weights.sum() == np.cumsum(weights)[-1] == 2**53
    rng = np.random.default_rng(3)
    weights, _ = Workspace().weigh(rng.normal(0, 5, 50_000).astype(np.float32), 30.0, 1.0)
    total = sum(int(weight) for weight in weights)
    shuffled = rng.permutation(weights)
    assert float(np.cumsum(shuffled)[-1]) == float(shuffled.sum()) == total


def test_a_workspace_serves_vocabularies_of_any_size_in_turn() -> None:
    workspace = Workspace()
    rng = np.random.default_rng(4)
    for count in (5, 3000, 1, 3001, 64):
        scores = rng.normal(0, 5, count).astype(np.float32)
        best = float(scores.max())
        weights, steps = workspace.weigh(scores, best, 0.7)
        assert len(weights) == len(steps) == count
        assert weights.tolist() == [naive.weight_of(s, best, 0.7) for s in scores.tolist()]


def test_the_place_of_a_word_is_where_the_running_sum_exceeds_its_share() -> None:
    rng = np.random.default_rng(5)
    for count in (1, 2, 255, 256, 257, 1000):
        weights = np.floor(rng.uniform(0, 4, count) ** 3)
        weights[count // 2] += 1
        sums = np.cumsum(weights).astype(int).tolist()
        for word in (0, 2**64 - 1, *map(int, rng.integers(0, 2**63, 20))):
            expected = next(i for i, end in enumerate(sums) if end > word * sums[-1] >> 64)
            assert locate(weights, word) == expected


def test_a_share_that_ends_at_the_end_of_a_block_is_looked_for_behind_it() -> None:
    weights = np.ones(512)
    weights[256:260] = 0
    assert locate(weights, -(-(256 << 64) // 508)) == 260


def test_a_candidate_without_a_weight_is_never_drawn() -> None:
    weights = np.array([0.0, 0.0, 3.0, 0.0, 1.0, 0.0])
    assert {locate(weights, word << 60) for word in range(16)} == {2, 4}


def test_the_logarithm_is_right_to_the_last_place_or_two() -> None:
    rng = np.random.default_rng(6)
    for value in [1.0, 2.0, 2**0.5, float(2**19), *np.exp(rng.uniform(0, 13, 500)).tolist()]:
        assert abs(natural_log(value) - math.log(value)) <= 2 * math.ulp(math.log(value))
        assert natural_log(value) == naive.natural_log(value)
