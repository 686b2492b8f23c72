"""The state of one sequence: ranges of its parameters, counts, draws, masks."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from model_host.refusals import SamplingInvalid, StopInvalid
from model_host.sampling.state import SamplerState, draw_word
from replica.ids import PublicKey
from replica.log.body import LogitBias, Request, Sampling
from spec.vectors.make import sampler as naive
from tests.support.sampling import NOBODY, state_of

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
        state_of(Sampling(**wrong))  # type: ignore[arg-type]


def test_the_greatest_integers_are_in_range() -> None:
    state_of(Sampling(top_k=2**32 - 1, penalty_window=2**32 - 1, seed=2**64 - 1))


@pytest.mark.parametrize(("count", "vocabulary"), [(21, 49_152), (10, 9)])
def test_more_log_probabilities_than_are_recorded_are_refused(count: int, vocabulary: int) -> None:
    state_of(Sampling(), vocabulary=vocabulary, logprobs=min(20, vocabulary))
    with pytest.raises(SamplingInvalid, match=f"logprobs is {count}, not between"):
        state_of(Sampling(), vocabulary=vocabulary, logprobs=count)


def biases(*pairs: tuple[int, float]) -> Sampling:
    return Sampling(logit_bias=tuple(LogitBias(*pair) for pair in pairs))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (biases((3, 100.5)), "bias of token 3 is 100.5"),
        (biases((3, float("nan"))), "bias of token 3 is nan"),
        (biases((3, 1.0), (3, 2.0)), "twice"),
        (biases((4, 1.0), (3, 2.0)), "order"),
        (biases((100, 1.0)), "outside the vocabulary of 100"),
        (biases(*((i, 1.0) for i in range(1025))), "1025 tokens, more than 1024"),
    ],
)
def test_a_bias_out_of_range_is_refused(wrong: Sampling, words: str) -> None:
    with pytest.raises(SamplingInvalid, match=words):
        state_of(wrong, vocabulary=100)


def test_as_many_biases_as_fit_are_accepted() -> None:
    state_of(biases(*((i, -100.0) for i in range(1024))), vocabulary=1024)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ((100,), "outside the vocabulary of 100"),
        ((7, 7), "twice"),
        ((9, 7), "order"),
        (tuple(range(65)), "65 tokens, more than 64"),
    ],
)
def test_stop_tokens_out_of_range_are_refused(wrong: tuple[int, ...], words: str) -> None:
    with pytest.raises(StopInvalid, match=words):
        state_of(Sampling(), vocabulary=100, stop_tokens=wrong)
    assert state_of(Sampling(), vocabulary=65, stop_tokens=tuple(range(1, 65))).end_ids


def test_an_answer_ends_at_the_tokens_of_the_model_and_of_the_request() -> None:
    request = Request(NOBODY, Sampling(), stop_tokens=(3, 5))
    assert SamplerState(request, vocabulary=9, end_ids=(2, 3)).end_ids == {2, 3, 5}


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
    state = state_of(Sampling(seed=4), [7, 8], 5)
    words = []
    for token in (1, 2, 3):
        words.append(state.word)
        state.add(token)
    assert words == [draw_word(4, index) for index in (5, 6, 7)]


def test_the_token_of_number_zero_is_counted_like_any_other() -> None:
    """Slots that no token has yet have its number."""
    sampling, logits = Sampling(**PENALTIES), np.ones(3, np.float32)
    grown, counted = state_of(sampling, [1]), state_of(sampling, [1, 0])
    grown.add(0)
    assert grown.scores(logits).tolist() == counted.scores(logits).tolist()


@pytest.mark.parametrize("width", [0, 1, 5, 64, 1000])
def test_counts_that_grow_token_by_token_equal_a_count_of_the_window(width: int) -> None:
    rng = np.random.default_rng(width)
    some = biases((2, 1.0), (9, -2.0), (250, 0.5)).logit_bias if width % 2 else ()
    sampling = Sampling(**PENALTIES, penalty_window=width, logit_bias=some)
    logits = rng.normal(0, 4, 300).astype(np.float32)
    context = rng.integers(0, 300, 40).tolist()
    grown = state_of(sampling, context)
    for token in rng.integers(0, 300, 200).tolist():
        grown.add(token)
        context.append(token)
        counted = state_of(sampling, context)
        assert grown.scores(logits).tobytes() == counted.scores(logits).tobytes()


def test_a_state_that_waits_takes_no_memory_for_its_context() -> None:
    """A replay makes those of all its answers at once."""
    context = tuple(range(20_000))
    request = Request(PublicKey(bytes(32)), Sampling(repetition_penalty=1.5))
    tracemalloc.start()
    try:
        waiting = [SamplerState(request, vocabulary=20_000, context=context) for _ in range(20)]
        before = tracemalloc.get_traced_memory()[0]
        waiting[0].scores(np.zeros(20_000, np.float32))
        counted = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert before < counted


def test_without_penalties_no_token_is_counted() -> None:
    logits = np.arange(20, dtype=np.float32)
    state = state_of(biases((3, 2.5)), range(20), vocabulary=20)
    for token in (1, 3, 3):
        state.add(token)
    changed = logits.copy()
    changed[3] += 2.5
    assert state.scores(logits).tolist() == changed.tolist()


def test_a_token_that_is_absent_stays_absent() -> None:
    logits = np.array([-np.inf, 0, 1], np.float32)
    sampling = replace(biases((0, 100.0)), presence_penalty=-100.0)
    assert state_of(sampling, [0]).scores(logits).tolist() == [-np.inf, 0, 1]


def test_logits_given_are_not_changed() -> None:
    logits = np.ones(40, np.float32)
    mask = np.array([5, 0], np.int32)
    state = state_of(Sampling(**PENALTIES), [1, 2])
    assert not np.array_equal(state.scores(logits, mask), logits)
    assert (logits == 1).all()


def test_scores_are_written_where_the_caller_says() -> None:
    logits, memory = np.ones(40, np.float32), np.full(40, 7, np.float32)
    state = state_of(Sampling(**PENALTIES), [1, 2])
    assert state.scores(logits, None, memory) is memory
    assert memory.tolist() == state.scores(logits).tolist()


def test_without_mask_and_penalties_no_array_is_copied() -> None:
    logits = np.ones(40, np.float32)
    assert state_of(Sampling(temperature=1.0), [1, 2]).scores(logits) is logits


def test_a_mask_has_a_bit_per_token() -> None:
    logits = np.arange(70, dtype=np.float32)
    for allowed in ([0], [31], [32, 69], [3, 33, 63, 64]):
        mask = np.zeros(3, np.uint32)
        for token in allowed:
            mask[token // 32] |= np.uint32(1 << token % 32)
        scores = state_of(Sampling()).scores(logits, mask.view(np.int32))
        assert np.flatnonzero(np.isfinite(scores)).tolist() == allowed


def test_no_token_ends_an_answer_before_its_least_length() -> None:
    logits = np.arange(9, dtype=np.float32)
    for index, excluded in ((0, {2, 8}), (4, {2, 8}), (5, set())):
        state = state_of(Sampling(), (), index, output_tokens_min=5, stop_tokens=(2, 8))
        assert set(np.flatnonzero(np.isneginf(state.scores(logits))).tolist()) == excluded


def test_a_grammar_that_allows_nothing_but_an_end_gets_it() -> None:
    logits = np.arange(9, dtype=np.float32)
    state = state_of(Sampling(), output_tokens_min=5, stop_tokens=(2, 8))
    scores = state.scores(logits, np.array([1 << 8], np.int32))
    assert np.flatnonzero(np.isfinite(scores)).tolist() == [8]
