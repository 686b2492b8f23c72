"""Sampler states for tests, and the choices of a vector as the code under test makes them."""

from typing import Any

import numpy as np

from model_host.engine_api import Logits
from model_host.sampling import Mask, Sampler, SamplerState
from replica.ids import PublicKey
from replica.log.body import LogitBias, Request, Sampling, TokenLogprobs
from spec.vectors.make import sampler as naive

Given = dict[str, Any]
VOCABULARY = 49_152
NOBODY = PublicKey(bytes(32))


def state_of(
    sampling: Sampling,
    context: list[int] | tuple[int, ...] = (),
    output_index: int = 0,
    *,
    vocabulary: int = VOCABULARY,
    **more: Any,
) -> SamplerState:
    """Return the state of a request with this sampling; `more` are other fields of it."""
    return SamplerState(
        Request(NOBODY, sampling, **more),
        vocabulary=vocabulary,
        context=context,
        output_index=output_index,
    )


def state_as_given(given: Given) -> SamplerState:
    """Return the state that a vector describes."""
    plain = dict(given["sampling"])
    bias = tuple(LogitBias(*pair) for pair in plain.pop("logit_bias"))
    sampling = Sampling(**plain | {"seed": int(plain["seed"]), "logit_bias": bias})
    return state_of(
        sampling,
        given["context"],
        given["output_index"],
        output_tokens_min=given["output_tokens_min"],
        stop_tokens=tuple(given["end_ids"]),
        logprobs=given["logprobs"],
    )


def mask_as_given(given: Given) -> Mask | None:
    """Return the mask that a vector describes, None if it has none."""
    return given["mask"] and np.frombuffer(bytes.fromhex(given["mask"]), "<i4")


def sampled(
    sampler: Sampler, logits: Logits, given: Given
) -> tuple[list[int] | None, int, Given | None]:
    """Return the weights by id, None where nothing is drawn, the token, and its record."""
    state, mask = state_as_given(given), mask_as_given(given)
    choice = sampler.choose(logits, state, mask)
    recorded = choice.logprobs and recorded_as_given(choice.logprobs)
    if not state.sampling.temperature:
        return None, choice.token_id, recorded
    scores = state.scores(logits, mask)
    ids, weights = sampler.weigh(scores, float(scores.max()), state.sampling)
    by_id = np.zeros(len(logits), np.int64)
    by_id[ids if ids is not None else slice(None)] = weights
    return by_id.tolist(), choice.token_id, recorded


def recorded_as_given(logprobs: TokenLogprobs) -> Given:
    """Return log probabilities in the form of a vector."""
    return {
        "logprob": naive.packed([logprobs.logprob]),
        "top_ids": list(logprobs.top_ids),
        "top_logprobs": naive.packed(list(logprobs.top_logprobs)),
    }
