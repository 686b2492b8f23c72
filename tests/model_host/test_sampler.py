"""The sampling recipe against a naive twin written from its text."""

import math
from fractions import Fraction
from itertools import accumulate

import numpy as np
import pytest

from model_host.errors import LogitsInvalid
from model_host.refusals import SamplingInvalid
from model_host.sampler import (
    RECIPE_DIGEST,
    Logits,
    check_sampling,
    exponential,
    sample,
    sampler_for,
    uniform,
)
from replica.log.body import Sampling


def naive_sample(logits: list[float], s: Sampling, context: list[int], index: int) -> int:
    """Sample as spec/07-host states, one candidate at a time."""
    scores = list(logits)
    window = context[-s.penalty_window :] if s.penalty_window else context
    for token in set(window):
        if s.repetition_penalty not in (0, 1):
            penalty = s.repetition_penalty
            positive = scores[token] > 0
            scores[token] = scores[token] / penalty if positive else scores[token] * penalty
        scores[token] -= window.count(token) * s.frequency_penalty
        scores[token] -= s.presence_penalty
    order = sorted(range(len(scores)), key=lambda token: (-scores[token], token))
    if s.temperature == 0:
        return order[0]
    best = scores[order[0]] / s.temperature
    order = [t for t in order if scores[t] / s.temperature >= best - 40]
    if s.top_k:
        order = order[: s.top_k]
    weight = {t: math.exp(scores[t] / s.temperature - best) for t in order}
    if 0 < s.top_p < 1:
        sums = list(accumulate(weight[t] for t in order))
        order = order[: 1 + sum(value < s.top_p * sums[-1] for value in sums)]
    order = [t for t in order if weight[t] >= s.min_p]
    sums = list(accumulate(weight[t] for t in order))
    draw = uniform(s.seed, 0, 0, index) * sums[-1]
    return next(t for t, value in zip(order, sums, strict=True) if value > draw)


def _bf16(rng: np.random.Generator, count: int, scale: float) -> Logits:
    """Logits with the 8 bits of bf16: many ties."""
    words = (rng.normal(0, scale, count)).astype(np.float32).view(np.uint32)
    return (words & np.uint32(0xFFFF0000)).view(np.float32)


def test_the_recipe_agrees_with_its_naive_twin_on_16_bit_logits() -> None:
    rng = np.random.default_rng(1)
    ties = 0
    for index in range(1500):
        logits = _bf16(rng, 200, float(rng.choice([0.5, 2.0, 8.0])))
        ties += int((logits == logits.max()).sum() > 1)
        s = Sampling(
            temperature=float(rng.choice([0.0, 0.3, 0.7, 1.0, 2.0])),
            top_k=int(rng.choice([0, 1, 2, 5, 40, 1000])),
            top_p=float(rng.choice([0.0, 0.1, 0.5, 0.95, 1.0])),
            min_p=float(rng.choice([0.0, 0.05, 0.5, 1.0])),
            repetition_penalty=float(rng.choice([0.0, 1.0, 1.3])),
            presence_penalty=float(rng.choice([0.0, 0.5, -1.0])),
            frequency_penalty=float(rng.choice([0.0, 0.25])),
            penalty_window=int(rng.choice([0, 1, 16])),
            seed=index,
        )
        context = rng.integers(0, 200, 30).tolist()
        naive = naive_sample(logits.astype(float).tolist(), s, context, index)
        assert sample(logits, s, context, index) == naive
    assert ties > 20


def test_greedy_chooses_the_lowest_id_of_equals() -> None:
    logits = np.zeros(50, np.float32)
    logits[[7, 9, 30]] = 3.0
    assert sample(logits, Sampling(), [], 0) == 7


def test_top_k_of_equals_keeps_the_lowest_ids() -> None:
    logits = np.full(1000, 1.5, np.float32)
    s = Sampling(temperature=1.0, top_k=3)
    assert {sample(logits, s, [], index) for index in range(200)} == {0, 1, 2}


def test_a_draw_depends_on_its_index_and_on_nothing_else() -> None:
    indexes = [
        (s, c, p, i) for s in (0, 1, 2**64 - 1) for c in (0, 1) for p in (0, 1) for i in (0, 9)
    ]
    draws = [uniform(*index) for index in indexes]
    assert len(set(draws)) == len(draws)
    assert draws == [uniform(*index) for index in reversed(indexes)][::-1]
    assert uniform(1, 0, 0, 0) == float.fromhex("0x1.1f15efae71bd8p-1")


def test_draws_are_uniform_and_never_one() -> None:
    draws = [uniform(3, 0, 0, index) for index in range(20_000)]
    counts, _ = np.histogram(draws, bins=20, range=(0, 1))
    assert all(0 <= draw < 1 for draw in draws)
    assert ((counts - 1000) ** 2 / 1000).sum() < 45  # chi-square, 19 degrees: p = 0.0007


def test_sampled_frequencies_are_the_probabilities() -> None:
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05], np.float32))
    choose = sampler_for(Sampling(temperature=1.0, seed=4))
    counts = np.bincount([choose(logits, [], index) for index in range(8000)], minlength=4)
    assert np.abs(counts / 8000 - [0.5, 0.3, 0.15, 0.05]).max() < 0.02


def test_candidates_of_one_request_differ() -> None:
    logits = np.zeros(1000, np.float32)
    s = Sampling(temperature=1.0, seed=4)
    first, second = sampler_for(s), sampler_for(s, candidate=1)
    assert [first(logits, [], i) for i in range(9)] != [second(logits, [], i) for i in range(9)]


def test_a_grammar_mask_wins_over_everything() -> None:
    logits, allowed = np.arange(100, dtype=np.float32), np.zeros(100, np.bool_)
    allowed[[3, 5]] = True
    assert sample(logits, Sampling(), [], 0, allowed=allowed) == 5
    warm = Sampling(temperature=2.0, top_k=50)
    assert {sample(logits, warm, [], i, allowed=allowed) for i in range(99)} == {3, 5}


def test_logits_without_a_choice_are_refused() -> None:
    for bad in (np.nan, np.inf):
        logits = np.zeros(9, np.float32)
        logits[4] = bad
        with pytest.raises(LogitsInvalid):
            sample(logits, Sampling(), [], 0)
    with pytest.raises(LogitsInvalid):
        sample(np.zeros(9, np.float32), Sampling(), [], 0, allowed=np.zeros(9, np.bool_))


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -0.1},
        {"temperature": float("nan")},
        {"top_p": 1.5},
        {"min_p": -1.0},
        {"top_k": -1},
        {"repetition_penalty": -2.0},
        {"presence_penalty": float("inf")},
        {"penalty_window": -1},
        {"top_k": 2**32},
        {"penalty_window": 2**32},
        {"seed": 2**64},
        {"temperature": 1e-310, "min_p": 0.1},
        {"temperature": 9.9e-4},
        {"repetition_penalty": 1e-310},
    ],
)
def test_a_parameter_out_of_range_is_refused_by_name(wrong: dict[str, float]) -> None:
    with pytest.raises(SamplingInvalid, match=next(iter(wrong))):
        check_sampling(Sampling(**wrong))  # type: ignore[arg-type]
    with pytest.raises(SamplingInvalid, match=next(iter(wrong))):
        sampler_for(Sampling(**wrong))  # type: ignore[arg-type]


def test_the_greatest_integers_are_in_range() -> None:
    check_sampling(Sampling(top_k=2**32 - 1, penalty_window=2**32 - 1, seed=2**64 - 1))


@pytest.mark.parametrize("factor", [0.0, 1e-3, 100.0])
def test_at_the_bounds_of_their_ranges_every_choice_is_defined(factor: float) -> None:
    logits = np.array([3e38, -3e38, 3e38, 0, 1], np.float32)
    s = Sampling(temperature=factor, repetition_penalty=factor, min_p=1.0, top_k=2, seed=7)
    check_sampling(s)
    assert sample(logits, s, [0, 1, 4], 0) in (0, 2)


def test_logits_that_overflow_leave_no_choice() -> None:
    with pytest.raises(LogitsInvalid):
        sample(np.ones(3, np.float32), Sampling(temperature=1e-310), [], 0)


def test_the_exponential_is_right_to_the_last_place_or_two() -> None:
    x = -np.random.default_rng(2).uniform(0, 40, 2000)
    for value, result in zip(x, exponential(x), strict=True):
        exact = _exact_exponential(Fraction(float(value)))
        assert abs(Fraction(float(result)) / exact - 1) < Fraction(2, 2**52)
    assert exponential(np.zeros(1))[0] == 1.0


def _exact_exponential(x: Fraction) -> Fraction:
    """Return e**x to 30 digits: halve, sum the series, square back."""
    small, term, total = x / 64, Fraction(1), Fraction(1)
    for n in range(1, 30):
        term = (term * small / n).limit_denominator(10**40)
        total += term
    for _ in range(6):
        total = (total * total).limit_denominator(10**40)
    return total


def test_the_digest_of_the_recipe_is_the_one_these_tests_check() -> None:
    assert RECIPE_DIGEST.hex().startswith("ea2e3345aa47baf5")
