"""The sampling of one sequence: its parameters, and counts that grow with it. Pure.

    state.scores(logits) ─► a sampler chooses ─► state.add(token) ─► …

A state is made once per run, and counts its context at the first choice. Each token changes
its counts by one step, so a penalty over the whole context costs no more at its end than at
its beginning.
"""

import hashlib
import struct
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from model_host.engine_api import Logits
from model_host.refusals import SamplingInvalid, StopInvalid
from replica.limits import LOGIT_BIASES_MAX, LOGPROBS_MAX, STOP_TOKENS_MAX
from replica.log import (
    Request,
    Sampling,
    TokenLogprobs,
    ids_fault,
    range_fault,
    sampling_fault,
)

Mask = npt.NDArray[np.int32]
"""A grammar's mask: bit i % 32 of word i // 32 allows id i."""

_SCORE_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class Choice:
    """A token chosen, with log probabilities where the request asks for them."""

    token_id: int
    logprobs: TokenLogprobs | None = None


def check_request(request: Request, vocabulary: int) -> None:
    """Raise SamplingInvalid or StopInvalid for a parameter out of range (spec/07-host §3)."""
    sampling, most = request.sampling, min(LOGPROBS_MAX, vocabulary)
    fault = sampling_fault(sampling) or range_fault("logprobs", request.logprobs, 0, most)
    if fault is not None:
        raise SamplingInvalid(f"{fault}.")
    biased = [one.token_id for one in sampling.logit_bias]
    if fault := ids_fault("logit_bias", biased, LOGIT_BIASES_MAX, vocabulary - 1):
        raise SamplingInvalid(f"{fault}.")
    if fault := ids_fault("stop_tokens", request.stop_tokens, STOP_TOKENS_MAX, vocabulary - 1):
        raise StopInvalid(f"{fault}.")


def draw_word(seed: int, output_index: int) -> int:
    """Return the 64 bits that decide the draw of one output index."""
    key = struct.pack("<QQ", seed, output_index)
    return int.from_bytes(hashlib.sha256(b"antiphon/v1/draw" + key).digest()[:8], "big")


class SamplerState:
    """The parameters of one sequence, and the tokens so far as far as sampling needs them."""

    def __init__(
        self,
        request: Request,
        *,
        vocabulary: int,
        context: Sequence[int] = (),
        output_index: int = 0,
        end_ids: Iterable[int] = (),
    ) -> None:
        """Start behind `context`, every token so far, at an index counted from the turn's start.

        `context` must not change. Its tokens are counted at the first choice, so that a state
        which waits takes little memory. `end_ids` end an answer for any request. Raises
        SamplingInvalid or StopInvalid.
        """
        check_request(request, vocabulary)
        sampling = request.sampling
        self.sampling = sampling
        self.output_index = output_index
        self.end_ids = frozenset(end_ids).union(request.stop_tokens)
        """The tokens that end this answer."""
        self.logprobs = request.logprobs
        """How many of the likeliest tokens are recorded with each token; 0 for no record."""
        self._first_end = request.output_tokens_min
        self._ends = np.array(sorted(self.end_ids), np.int64)
        self._has_changes = _changes(sampling)
        self._context = context

    @cached_property
    def _changes(self) -> "_Changes | None":
        context, self._context = self._context, ()
        return _Changes(self.sampling, context) if self._has_changes else None

    @property
    def word(self) -> int:
        """The 64 bits that decide the next draw."""
        return draw_word(self.sampling.seed, self.output_index)

    def add(self, token_id: int) -> None:
        """Count the token chosen last."""
        self.output_index += 1
        if self._changes is not None:
            self._changes.add(token_id)

    def scores(
        self, logits: Logits, mask: Mask | None = None, memory: Logits | None = None
    ) -> Logits:
        """Return the scores of logits [V], which are not changed.

        They are the logits after mask, least length, bias and penalties, in `memory` if
        there are any of these and it is given.
        """
        is_early = self.output_index < self._first_end
        if mask is None and self._changes is None and not is_early:
            return logits
        scores = memory if memory is not None else np.empty_like(logits)
        np.copyto(scores, logits)
        if mask is not None:
            np.copyto(scores, -np.inf, where=~allowed_ids(mask, len(logits)))
        if is_early:
            _exclude(scores, self._ends)
        if self._changes is not None:
            self._changes.apply(scores)
        return scores


def _exclude(scores: Logits, ids: npt.NDArray[np.int64]) -> None:
    """Exclude tokens, in place, unless no other is left."""
    before = scores[ids]
    scores[ids] = -np.inf
    if np.isneginf(scores.max()):
        scores[ids] = before


def allowed_ids(mask: Mask, count: int) -> npt.NDArray[np.bool_]:
    """Return a mask as one truth value for each of `count` ids."""
    octets = np.ascontiguousarray(mask, "<i4").view(np.uint8)
    return np.unpackbits(octets, count=count, bitorder="little").view(np.bool_)


def _changes(sampling: Sampling) -> bool:
    return bool(sampling.logit_bias) or _penalises(sampling)


def _penalises(sampling: Sampling) -> bool:
    changes = sampling.presence_penalty or sampling.frequency_penalty
    return bool(changes) or sampling.repetition_penalty not in (0, 1)


class _Changes:
    """The bias of tokens, and how often each is in the window of the penalties.

    Memory grows with the number of distinct tokens.
    """

    def __init__(self, sampling: Sampling, context: Sequence[int]) -> None:
        self._repetition = sampling.repetition_penalty or 1.0
        self._presence = sampling.presence_penalty
        self._frequency = sampling.frequency_penalty
        self._counts_tokens = _penalises(sampling)
        self._width = sampling.penalty_window
        window = context[-self._width :] if self._width else context
        window = window if self._counts_tokens else ()
        self._leaving = deque(window if self._width else ())
        biased = [one.token_id for one in sampling.logit_bias]
        ids, counts = np.unique(np.array([*window, *biased], np.int64), return_counts=True)
        self._slots = {token_id: slot for slot, token_id in enumerate(ids.tolist())}
        self._ids, self._counts = ids, counts.astype(np.float64)
        self._bias = np.zeros(len(ids))
        for one in sampling.logit_bias:
            slot = self._slots[one.token_id]
            self._bias[slot] = one.bias
            self._counts[slot] -= 1  # it stands in the list once without being in the window

    def add(self, token_id: int) -> None:
        if not self._counts_tokens:
            return
        slot = self._slots.setdefault(token_id, len(self._slots))
        if slot == len(self._ids):
            more = np.zeros(slot + 64)
            self._ids = np.concatenate([self._ids, more.astype(np.int64)])
            self._counts = np.concatenate([self._counts, more])
            self._bias = np.concatenate([self._bias, more])
        self._ids[slot] = token_id
        self._counts[slot] += 1
        if self._width:
            self._leaving.append(token_id)
            if len(self._leaving) > self._width:
                self._counts[self._slots[self._leaving.popleft()]] -= 1

    def apply(self, scores: Logits) -> None:
        """Add the bias and subtract the penalties, in place."""
        present = np.flatnonzero((self._counts > 0) | (self._bias != 0))
        ids, counts = self._ids[present], self._counts[present]
        changed = scores[ids].astype(np.float64)
        absent = np.isneginf(changed)
        changed += self._bias[present]
        repeated = np.where(changed > 0, changed / self._repetition, changed * self._repetition)
        changed = np.where(counts > 0, repeated, changed)
        changed -= counts * self._frequency
        changed -= np.where(counts > 0, self._presence, 0.0)
        changed = np.clip(changed, -_SCORE_MAX, _SCORE_MAX)
        changed[absent] = -np.inf
        scores[ids] = changed
