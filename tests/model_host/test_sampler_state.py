"""The state of one sequence: ranges of its parameters, counts, draws, masks."""

import numpy as np
import pytest

from model_host.refusals import SamplingInvalid
from model_host.sampler_state import SamplerState, check_sampling, draw_word
from replica.log.body import Sampling
from spec.vectors.make import sampler as naive

PENALTIES = {
    "repetition_penalty": 1.3, "presence_penalty": 0.5, "frequency_penalty": 0.25,
}  # fmt: skip


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
        SamplerState(Sampling(**wrong))  # type: ignore[arg-type]


def test_the_greatest_integers_are_in_range() -> None:
    check_sampling(Sampling(top_k=2**32 - 1, penalty_window=2**32 - 1, seed=2**64 - 1))


def test_a_draw_depends_on_its_index_and_on_nothing_else() -> None:
    indexes = [(seed, index) for seed in (0, 1, 2**64 - 1) for index in (0, 9, 2**40)]
    words = [draw_word(*index) for index in indexes]
    assert len(set(words)) == len(words)
    assert words == [naive.word_of(*index) for index in indexes]


def test_draws_are_uniform() -> None:
    draws = [draw_word(3, index) / 2**64 for index in range(20_000)]
    counts, _ = np.histogram(draws, bins=20, range=(0, 1))
    assert ((counts - 1000) ** 2 / 1000).sum() < 45  # chi-square, 19 degrees: p = 0.0007


def test_each_token_moves_the_draw_by_one_index() -> None:
    state = SamplerState(Sampling(seed=4), [7, 8], 5)
    words = []
    for token in (1, 2, 3):
        words.append(state.word)
        state.add(token)
    assert words == [draw_word(4, index) for index in (5, 6, 7)]


@pytest.mark.parametrize("width", [0, 1, 5, 64, 1000])
def test_counts_that_grow_token_by_token_equal_a_count_of_the_window(width: int) -> None:
    rng = np.random.default_rng(width)
    sampling = Sampling(**PENALTIES, penalty_window=width)
    logits = rng.normal(0, 4, 300).astype(np.float32)
    context = rng.integers(0, 300, 40).tolist()
    grown = SamplerState(sampling, context)
    for token in rng.integers(0, 300, 200).tolist():
        grown.add(token)
        context.append(token)
        counted = SamplerState(sampling, context)
        assert grown.scores(logits).tobytes() == counted.scores(logits).tobytes()


def test_the_penalties_are_those_of_the_text() -> None:
    rng = np.random.default_rng(6)
    for width in (0, 3, 50):
        sampling = Sampling(**PENALTIES, penalty_window=width)
        logits = rng.normal(0, 4, 60).astype(np.float32)
        context = rng.integers(0, 60, 30).tolist()
        given = {
            "mask": None, "context": context,
            "sampling": naive.DEFAULTS | PENALTIES | {"penalty_window": width},
        }  # fmt: skip
        scores = SamplerState(sampling, context).scores(logits)
        assert scores.tolist() == naive.scores_of(logits.tolist(), given)


def test_logits_given_are_not_changed() -> None:
    logits = np.ones(40, np.float32)
    mask = np.array([5, 0], np.int32)
    state = SamplerState(Sampling(**PENALTIES), [1, 2])
    assert not np.array_equal(state.scores(logits, mask), logits)
    assert (logits == 1).all()


def test_without_mask_and_penalties_no_array_is_copied() -> None:
    logits = np.ones(40, np.float32)
    assert SamplerState(Sampling(temperature=1.0), [1, 2]).scores(logits) is logits


def test_a_mask_has_a_bit_per_token() -> None:
    logits = np.arange(70, dtype=np.float32)
    for allowed in ([0], [31], [32, 69], [3, 33, 63, 64]):
        mask = np.zeros(3, np.uint32)
        for token in allowed:
            mask[token // 32] |= np.uint32(1 << token % 32)
        scores = SamplerState(Sampling()).scores(logits, mask.view(np.int32))
        assert np.flatnonzero(np.isfinite(scores)).tolist() == allowed
