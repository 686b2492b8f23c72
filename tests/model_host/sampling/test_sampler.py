"""The sampling recipe against a naive twin: the generator of its vectors."""

from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from model_host.engine_api import Logits
from model_host.errors import LogitsInvalid
from model_host.sampling.sampler import RECIPE_DIGEST, Sampler, first_of, sampler_for
from model_host.sampling.state import Choice, SamplerState
from model_host.sampling.weights import CANDIDATES_MAX
from replica.ids import Digest
from replica.log.body import Sampling
from spec.vectors.make import sampler as naive
from tests.support.sampling import sampled, state_of

SAMPLER = Sampler()


def one(logits: Logits, sampling: Sampling, index: int = 0, context: tuple[int, ...] = ()) -> int:
    """Choose one token."""
    return SAMPLER.choose(logits, state_of(sampling, context, index)).token_id


def _bf16(rng: np.random.Generator, count: int, scale: float) -> Logits:
    """Logits with the 8 bits of bf16: many ties."""
    words = (rng.normal(0, scale, count)).astype(np.float32).view(np.uint32)
    return (words & np.uint32(0xFFFF0000)).view(np.float32)


def a_request(rng: np.random.Generator, count: int, index: int) -> dict[str, Any]:
    """Return any request for logits of `count` tokens, in the form of a vector."""
    biased = sorted(set(rng.integers(0, count, 3).tolist())) if index % 5 == 0 else []
    words = rng.integers(0, 2**32, -(-count // 32), np.uint32) | 1
    return {
        "mask": words.tobytes().hex() if index % 3 == 0 else None,
        "context": rng.integers(0, count, 30).tolist(),
        "output_index": index,
        "output_tokens_min": int(rng.choice([0, 0, 2000])),
        "end_ids": sorted(set(rng.integers(0, count, 3).tolist())),
        "logprobs": int(rng.choice([0, 1, min(20, count)])),
        "sampling": {
            "temperature": float(rng.choice([0.0, 0.01, 0.3, 0.7, 1.0, 2.0])),
            "top_k": int(rng.choice([0, 1, 2, 5, 40, 1000])),
            "top_p": float(rng.choice([0.0, 0.1, 0.5, 0.95, 1.0])),
            "min_p": float(rng.choice([0.0, 0.05, 0.5, 1.0])),
            "repetition_penalty": float(rng.choice([0.0, 1.0, 1.3])),
            "presence_penalty": float(rng.choice([0.0, 0.5, -1.0])),
            "frequency_penalty": float(rng.choice([0.0, 0.25])),
            "penalty_window": int(rng.choice([0, 1, 16])),
            "seed": str(index),
            "logit_bias": [[i, float(rng.normal(0, 3))] for i in biased],
        },
    }


def test_the_recipe_agrees_with_its_naive_twin_on_16_bit_logits() -> None:
    rng = np.random.default_rng(1)
    ties = 0
    for index in range(900):
        count = int(rng.choice([1, 7, 64, 200, 1000]))
        logits = _bf16(rng, count, float(rng.choice([0.5, 2.0, 8.0])))
        ties += int((logits == logits.max()).sum() > 1)
        given = a_request(rng, count, index)
        weights, token = naive.choose(logits.tolist(), given)
        recorded = naive.logprobs_of(logits.tolist(), token, given["logprobs"])
        assert sampled(SAMPLER, logits, given) == (weights, token, recorded), given
    assert ties > 5


def test_greedy_chooses_the_lowest_id_of_equals() -> None:
    logits = np.zeros(50, np.float32)
    logits[[7, 9, 30]] = 3.0
    assert one(logits, Sampling()) == 7


def test_top_k_of_equals_keeps_the_lowest_ids() -> None:
    logits = np.full(1000, 1.5, np.float32)
    s = Sampling(temperature=1.0, top_k=3)
    assert {one(logits, s, index) for index in range(200)} == {0, 1, 2}


@pytest.mark.parametrize("count", [1, 2, 40, 700, 1999])
def test_the_first_of_many_are_those_of_a_stable_sort(count: int) -> None:
    scores = _bf16(np.random.default_rng(count), 2000, 1.0)
    scores[::7] = -np.inf
    ordered = np.argsort(-scores, kind="stable")[:count]
    assert first_of(scores, count).tolist() == sorted(ordered.tolist())


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(),
        Sampling(temperature=0.9),
        Sampling(temperature=0.9, top_k=40),
        Sampling(temperature=2.0, top_p=0.95),
        Sampling(temperature=0.9, top_k=40, top_p=0.95, min_p=0.01),
        Sampling(temperature=0.02, top_p=0.5),
    ],
    ids=str,
)
def test_a_vocabulary_of_common_size_agrees_with_the_naive_twin(sampling: Sampling) -> None:
    rng = np.random.default_rng(8)
    for index, scale in enumerate((0.1, 3.0, 20.0)):
        logits = _bf16(rng, 49_152, scale)
        given = {
            "mask": None, "context": [], "output_index": index, "output_tokens_min": 0,
            "sampling": asdict(sampling) | {"seed": "0"},
        }  # fmt: skip
        _, token = naive.choose(logits.tolist(), given)
        assert one(logits, sampling, index) == token


def test_a_choice_depends_on_nothing_else_in_the_batch() -> None:
    rng = np.random.default_rng(9)
    logits = _bf16(rng, 20 * 3000, 3.0).reshape(20, 3000)
    options = [
        Sampling(), Sampling(temperature=1.0), Sampling(temperature=1.0, top_k=5),
        Sampling(temperature=1.0, top_p=0.9, repetition_penalty=1.2),
    ]  # fmt: skip

    def states() -> list[SamplerState]:
        return [state_of(options[i % 4], list(range(i)), i) for i in range(20)]

    together = SAMPLER.sample(logits, states())
    alone = [Sampler().choose(row, state) for row, state in zip(logits, states(), strict=True)]
    backwards = SAMPLER.sample(logits[::-1].copy(), states()[::-1])[::-1]
    assert together == alone == backwards
    assert len({choice.token_id for choice in alone}) > 10


def test_a_row_without_a_choice_leaves_the_others_theirs() -> None:
    logits = np.zeros((3, 9), np.float32)
    logits[1, 4] = np.nan
    masks = [None, None, np.zeros(1, np.int32)]
    states = [state_of(Sampling()) for _ in range(3)]
    first, second, third = SAMPLER.sample(logits, states, masks)
    assert first == Choice(0)
    assert isinstance(second, LogitsInvalid)
    assert isinstance(third, LogitsInvalid)


def test_sampled_frequencies_are_the_probabilities() -> None:
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05], np.float32))
    state, tokens = state_of(Sampling(temperature=1.0, seed=4)), []
    for _ in range(8000):
        choice = SAMPLER.choose(logits, state)
        tokens.append(choice.token_id)
        state.add(choice.token_id)
    counts = np.bincount(tokens, minlength=4)
    assert np.abs(counts / 8000 - [0.5, 0.3, 0.15, 0.05]).max() < 0.02


def test_other_seeds_draw_otherwise() -> None:
    logits = np.zeros(1000, np.float32)
    first, second = (Sampling(temperature=1.0, seed=seed) for seed in (4, 5))
    assert [one(logits, first, i) for i in range(9)] != [one(logits, second, i) for i in range(9)]


def test_a_grammar_mask_wins_over_everything() -> None:
    logits, mask = np.arange(100, dtype=np.float32), np.array([0b101000, 0, 0, 0], np.int32)
    penalised = Sampling(temperature=2.0, top_k=50, presence_penalty=-100.0)
    for sampling, expected in ((Sampling(), {5}), (penalised, {3, 5})):
        states = [state_of(sampling, (99,), index) for index in range(99)]
        assert {SAMPLER.choose(logits, state, mask).token_id for state in states} == expected


def test_logits_without_a_choice_are_refused() -> None:
    warm = Sampling(temperature=1.0)
    for sampling in (Sampling(), warm):
        for bad in (np.nan, np.inf):
            logits = np.zeros(9, np.float32)
            logits[4] = bad
            with pytest.raises(LogitsInvalid):
                one(logits, sampling)
        with pytest.raises(LogitsInvalid):
            one(np.full(9, -np.inf, np.float32), sampling)
        with pytest.raises(LogitsInvalid, match="allowed"):
            none = np.zeros(1, np.int32)
            SAMPLER.choose(np.zeros(9, np.float32), state_of(sampling), none)
    with pytest.raises(LogitsInvalid, match=str(CANDIDATES_MAX)):
        one(np.zeros(CANDIDATES_MAX + 1, np.float32), warm)


@pytest.mark.parametrize("temperature", [1e-3, 1.0, 100.0])
@pytest.mark.parametrize("options", [{}, {"top_k": 3}, {"top_p": 0.5}, {"min_p": 0.5}], ids=str)
def test_at_the_bounds_of_float32_every_choice_is_defined(
    temperature: float, options: dict[str, float]
) -> None:
    greatest, least = (
        float(np.finfo(np.float32).max),
        float(np.finfo(np.float32).smallest_subnormal),
    )
    for value in (greatest, -greatest, least, -least):
        logits = np.full(70, value, np.float32)
        given = {
            "mask": None, "context": [1, 2], "output_index": 0, "output_tokens_min": 0,
            "end_ids": [], "logprobs": 3,
            "sampling": naive.DEFAULTS
            | {"temperature": temperature, "repetition_penalty": 100.0} | options,
        }  # fmt: skip
        weights, token = naive.choose(logits.tolist(), given)
        recorded = naive.logprobs_of(logits.tolist(), token, 3)
        assert sampled(SAMPLER, logits, given) == (weights, token, recorded)


@pytest.mark.parametrize("factor", [0.0, 1e-3, 100.0])
def test_at_the_bounds_of_their_ranges_every_choice_is_defined(factor: float) -> None:
    logits = np.array([3e38, -3e38, 3e38, 0, 1], np.float32)
    s = Sampling(temperature=factor, repetition_penalty=factor, min_p=1.0, top_k=2, seed=7)
    assert one(logits, s, 0, (0, 1, 4)) in (0, 2)


def test_log_probabilities_are_those_of_the_logits_as_given() -> None:
    logits = _bf16(np.random.default_rng(3), 49_152, 4.0)
    hot = Sampling(temperature=5.0, top_k=3, presence_penalty=50.0, seed=1)
    state = state_of(hot, (int(logits.argmax()),), logprobs=20)
    choice = SAMPLER.choose(logits, state)
    exact = logits - (np.log(np.exp(logits.astype(np.float64)).sum()))
    assert choice.logprobs is not None
    ids = [choice.token_id, *choice.logprobs.top_ids]
    found = [choice.logprobs.logprob, *choice.logprobs.top_logprobs]
    assert np.abs(exact[ids] - found).max() < 1e-5
    assert list(choice.logprobs.top_ids) == np.argsort(-logits, kind="stable")[:20].tolist()
    assert choice.token_id != choice.logprobs.top_ids[0]


def test_log_probabilities_are_recorded_on_request_alone() -> None:
    rows = np.zeros((3, 50), np.float32)
    states = [state_of(Sampling(), logprobs=count) for count in (0, 5, 0)]
    choices = [SAMPLER.choose(row, state) for row, state in zip(rows, states, strict=True)]
    assert [c.logprobs is None for c in choices] == [True, False, True]


def test_log_probabilities_beyond_float32_are_infinite() -> None:
    logits = np.array([3e38, -3e38, 0], np.float32)
    choice = SAMPLER.choose(logits, state_of(Sampling(), logprobs=3))
    assert choice.logprobs is not None
    assert choice.logprobs.top_logprobs == (0.0, float(np.float32(-3e38)), -np.inf)


def test_a_sampler_is_found_by_the_digest_of_its_recipe() -> None:
    found = sampler_for(RECIPE_DIGEST)
    assert found is not None
    logits, state = np.zeros((1, 50), np.float32), state_of(Sampling(temperature=1.0))
    assert found.sample(logits, [state]) == SAMPLER.sample(logits, [state])
    assert sampler_for(Digest(b"another recipe".ljust(32))) is None
    assert sampler_for(None) is None


def test_the_digest_of_the_recipe_is_the_one_these_tests_check() -> None:
    assert RECIPE_DIGEST.hex().startswith("e8b352b55721db7f")
