"""The sampling recipe (spec/07-host §3): from logits, parameters and an index to a token. Pure.

    logits ─ mask, least length ─ bias, penalties ─ top-k ─ weights ─ top-p ─ min-p ─ draw

Every machine chooses the same token: scores are float32, weights are integers, and sums of
them are exact (model_host/sampling/weights.py). Candidates have an order only where a step
drops some of them, and only near the border are they sorted; the draw goes through them by
id. It depends on seed and output index, not on the batch or on earlier draws.
"""

import hashlib
import math
from collections.abc import Sequence

import numpy as np

from model_host.engine_api import Logits
from model_host.errors import LogitsInvalid
from model_host.sampling.state import Choice, Mask, SamplerState
from model_host.sampling.weights import (
    BITS,
    CANDIDATES_MAX,
    STEPS_DOWN,
    Floats,
    Ids,
    Scores,
    Workspace,
    locate,
    natural_log,
    span,
)
from replica.ids import Digest
from replica.log import Sampling, TokenLogprobs

RECIPE = (
    "float64 unless said; mask; no end before the least index unless nothing else is left; "
    "bias, then repetition (divides > 0, multiplies others), then frequency * count, then presence "
    "penalty, over the window; clamped and rounded to float32; "
    "temperature 0 greedy, lowest id; order (logit desc, id asc); top-k; "
    "t = (best - score) * (64 / ln 2 / temperature), n = rint(t), r = t - n, "
    "weight rint((((-c3 * r + c2) * r - c1) * r + 1) * 2^(34 - n / 64)); "
    "top-p: smallest prefix with sum >= ceil(p * sum); min-p: weight >= p * 2^34; "
    "lowest id whose running sum > floor(w * sum / 2^64); "
    "w = first 8 bytes, big-endian, of SHA-256('antiphon/v1/draw' seed index little-endian); "
    "logprobs (logit - best) - ln(sum / 2^34) of raw logits at temperature 1, float32; v3"
)
RECIPE_DIGEST = Digest(hashlib.sha256(RECIPE.encode()).digest())

# Below this share of the vocabulary, candidates are gathered before they are weighed.
_GATHERED_MAX = 0.25
_ROWS = 64


class Sampler:
    """The current recipe, with working memory: for one thread at a time."""

    def __init__(self) -> None:
        """Start without working memory; it grows with the vocabulary."""
        self._workspace = Workspace()

    def sample(
        self,
        logits: Logits,
        states: Sequence[SamplerState],
        masks: Sequence[Mask | None] | None = None,
    ) -> list[Choice | LogitsInvalid]:
        """Choose a token for each row of logits [n, V] by its sequence's state.

        `masks` are those of grammars. States are not changed: the caller adds the tokens. A
        row without a choice has its error in place of one, which ends that sequence alone.
        """
        rows = masks if masks is not None else [None] * len(states)
        choices: list[Choice | LogitsInvalid] = []
        for row, state, mask in zip(logits, states, rows, strict=True):
            try:
                choices.append(self.choose(row, state, mask))
            except LogitsInvalid as error:
                choices.append(error)
        return choices

    def choose(self, logits: Logits, state: SamplerState, mask: Mask | None = None) -> Choice:
        """Choose a token from logits [V]. Raises LogitsInvalid."""
        token_id = self._token(logits, state, mask)
        recorded = self._logprobs(logits, token_id, state.logprobs) if state.logprobs else None
        return Choice(token_id, recorded)

    def _token(self, logits: Logits, state: SamplerState, mask: Mask | None) -> int:
        if len(logits) > CANDIDATES_MAX:
            raise LogitsInvalid(f"{len(logits)} tokens, more than {CANDIDATES_MAX}.")
        token_id = int(np.argmax(logits))  # the first NaN, else the lowest of equal ids
        if not np.isfinite(logits[token_id]):
            raise LogitsInvalid("The logits have a NaN or an infinity, or are all absent.")
        scores = state.scores(logits, mask, self._workspace.scores(len(logits)))
        if scores is not logits:
            token_id = int(np.argmax(scores))
        best = float(scores[token_id])
        if best == -math.inf:
            raise LogitsInvalid("No token is allowed.")
        if state.sampling.temperature == 0:
            return token_id
        return self._draw(scores, best, state)

    def _draw(self, scores: Scores, best: float, state: SamplerState) -> int:
        ids, weights = self.weigh(scores, best, state.sampling)
        position = locate(weights, state.word)
        return int(ids[position]) if ids is not None else position

    def weigh(self, scores: Scores, best: float, sampling: Sampling) -> tuple[Ids | None, Floats]:
        """Return the ids, ascending, of the candidates left, and their weights.

        Without ids there is a weight for each id of the vocabulary. The weight of some
        candidates is 0. Weights are valid until the next call.
        """
        ids = _candidates(scores, best, sampling.temperature, sampling.top_k)
        if ids is not None:
            scores = scores[ids]
        weights, steps = self._workspace.weigh(scores, best, sampling.temperature)
        kept: Ids | None = None
        if 0 < sampling.top_p < 1:
            kept = _prefix(sampling.top_p, scores, weights, steps)
            weights = weights[kept]
        if sampling.min_p > 0:
            heavy = np.flatnonzero(weights >= sampling.min_p * 2.0**BITS)
            kept = heavy if kept is None else kept[heavy]
            weights = weights[heavy]
        if kept is not None:
            ids = kept if ids is None else ids[kept]
        return ids, weights

    def logprob(self, logits: Logits, token_id: int) -> float:
        """Return the log probability of a token by logits [V] as the model gave them."""
        return self._logprobs(logits, token_id, 1).logprob

    def _logprobs(self, logits: Logits, token_id: int, count: int) -> TokenLogprobs:
        """Return the log probabilities of a token and of the first `count`, from raw logits."""
        best = float(logits.max())
        weights, _ = self._workspace.weigh(logits, best, 1.0)
        log_sum = natural_log(float(weights.sum()) / 2**BITS)
        near = np.flatnonzero(logits >= _reached_by(logits, count))
        top = near[first_of(logits[near], count)]
        top = top[np.argsort(-logits[top], kind="stable")]
        ids = [token_id, *top.tolist()]
        exact = (logits[ids].astype(np.float64) - best) - log_sum
        with np.errstate(over="ignore"):  # below the range of float32: -infinity
            own, *others = exact.astype(np.float32).tolist()
        return TokenLogprobs(own, tuple(ids[1:]), tuple(others))


_SAMPLERS: dict[Digest, type[Sampler]] = {RECIPE_DIGEST: Sampler}


def sampler_for(recipe: Digest | None) -> Sampler | None:
    """Return a sampler that executes the recipe with this digest; None if it is unknown here."""
    kind = _SAMPLERS.get(recipe) if recipe is not None else None
    return kind() if kind is not None else None


def _candidates(scores: Scores, best: float, temperature: float, top_k: int) -> Ids | None:
    """Return the ids, ascending, that can be drawn, or None where those are most ids.

    Beyond the first `top_k`, none has a weight; without top-k some may have a weight of 0.
    """
    with np.errstate(over="ignore"):  # below the range of float32: -infinity
        lowest = np.nextafter(np.float32(best - span(temperature)), np.float32(-np.inf))
    limits = 0 < top_k < len(scores)
    if limits:
        lowest = max(lowest, _reached_by(scores, top_k))
    elif np.count_nonzero(scores[::_ROWS] >= lowest) > _GATHERED_MAX * len(scores) / _ROWS:
        return None
    ids = np.flatnonzero(scores >= lowest)
    return ids[first_of(scores[ids], top_k)] if limits and len(ids) > top_k else ids


def _reached_by(scores: Scores, count: int) -> np.float32:
    """Return a score that at least `count` candidates reach, few more in most cases."""
    columns = len(scores) // _ROWS
    if count > columns:
        return np.float32(-np.inf)
    best = scores[: _ROWS * columns].reshape(_ROWS, columns).max(axis=0)
    return np.float32(np.partition(best, -count)[-count])


def first_of(scores: Scores, count: int) -> Ids:
    """Return the positions, ascending, of the first `count` by (score desc, position asc)."""
    last = np.partition(scores, -count)[-count]
    chosen = scores > last
    ties = np.flatnonzero(scores == last)
    chosen[ties[: count - np.count_nonzero(chosen)]] = True
    return np.flatnonzero(chosen)


def _prefix(top_p: float, scores: Scores, weights: Floats, steps: Ids) -> Ids:
    """Return the positions, ascending, of the shortest prefix with the share `top_p`.

    Only the candidates of the step in which that prefix ends are sorted.
    """
    mass = np.bincount(steps, weights=weights)[: STEPS_DOWN + 1]
    sums = np.cumsum(mass)
    needed = math.ceil(top_p * float(sums[-1]))
    last = int(np.searchsorted(sums, needed))
    within = np.flatnonzero(steps == last)
    within = within[np.argsort(-scores[within], kind="stable")]  # positions ascend already
    before = float(sums[last] - mass[last])
    count = int(np.searchsorted(np.cumsum(weights[within]), needed - before)) + 1
    kept = steps <= last
    kept[within[count:]] = False
    return np.flatnonzero(kept)
