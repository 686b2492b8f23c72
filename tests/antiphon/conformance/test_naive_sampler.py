"""The tokens that log probabilities allow are those that the recipe chooses."""

from dataclasses import replace

import numpy as np
import pytest

from antiphon.conformance.naive_sampler import possible
from model_host.sampling import Sampler
from replica.log import Sampling
from tests.support.sampling import state_of

ROUNDS, TOKENS, STATED, WINDOW = 60, 200, 20, 3
WHOLE = Sampling(temperature=1.5, top_k=12, penalty_window=WINDOW)
KINDS = {
    "top_k": (replace(WHOLE, top_k=4), replace(WHOLE, top_k=8)),
    "top_p": (replace(WHOLE, top_p=0.6), WHOLE),
    "min_p": (replace(WHOLE, min_p=0.5), WHOLE),
    "presence_penalty": (replace(WHOLE, top_k=2, presence_penalty=4.0), replace(WHOLE, top_k=2)),
    "frequency_penalty": (replace(WHOLE, top_k=2, frequency_penalty=3.0), replace(WHOLE, top_k=2)),
    "temperature": (WHOLE, replace(WHOLE, temperature=0.5)),
    "seed": (WHOLE, replace(WHOLE, seed=1)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_recipe_chooses_is_possible_and_what_another_does_often_is_not(kind: str) -> None:
    rng, sampler = np.random.default_rng(3), Sampler()
    wanted, otherwise = KINDS[kind]
    decided, wrong = 0, 0
    for index in range(ROUNDS):
        logits = rng.normal(0, 2, TOKENS).astype(np.float32)
        recent = tuple(int(token) for token in np.argsort(-logits)[rng.integers(0, 6, WINDOW)])
        choice, other = (
            sampler.choose(logits, state_of(one, recent, index, logprobs=STATED))
            for one in (wanted, otherwise)
        )
        assert choice.logprobs is not None
        tokens = possible(choice.logprobs, wanted, index, recent)
        if tokens is not None:
            decided += 1
            assert choice.token_id in tokens
            wrong += other.token_id not in tokens
    assert decided > ROUNDS // 2
    assert wrong > ROUNDS // 10


def test_candidates_that_are_not_stated_decide_nothing() -> None:
    logits = np.array([5.0, 4.5, 4.0, 3.9, 3.8], np.float32)
    sampling = replace(WHOLE, top_k=3, presence_penalty=2.0)
    state = state_of(sampling, (0,), logprobs=4, vocabulary=5)
    stated = Sampler().choose(logits, state).logprobs
    assert stated is not None
    assert possible(stated, sampling, 0, (0,)) is None  # the fifth may have come before the first
    assert possible(stated, replace(sampling, top_k=2), 0, (0,)) is not None
