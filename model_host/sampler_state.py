"""The sampling of one sequence: its parameters, and counts that grow with it. Pure.

    state.scores(logits) ─► a sampler chooses ─► state.add(token) ─► …

A state is built once per run. Each token changes its counts by one step, so a penalty over
the whole context costs no more at its end than at its beginning.
"""

import hashlib
import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from model_host.engine_api import Logits
from model_host.refusals import SamplingInvalid
from replica.log import Sampling

Mask = npt.NDArray[np.int32]
"""A grammar's mask: bit i % 32 of word i // 32 allows id i."""

# With a divisor this small every draw is greedy already; a smaller one would overflow.
_DIVISOR_MIN = 1e-3
_SCORE_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class Choice:
    """A token chosen."""

    token_id: int


def check_sampling(sampling: Sampling) -> None:
    """Raise SamplingInvalid, with its name, for a parameter out of range (spec/07-host §3)."""
    bounds: dict[str, tuple[float, float]] = {
        "temperature": (0.0, 100.0),
        "top_p": (0.0, 1.0),
        "min_p": (0.0, 1.0),
        "repetition_penalty": (0.0, 100.0),
        "presence_penalty": (-100.0, 100.0),
        "frequency_penalty": (-100.0, 100.0),
        "top_k": (0, 2**32 - 1),
        "penalty_window": (0, 2**32 - 1),
        "seed": (0, 2**64 - 1),
    }
    for name, (low, high) in bounds.items():
        value = getattr(sampling, name)
        if not low <= value <= high:  # also refuses a NaN
            raise SamplingInvalid(f"{name} is {value}, not between {low:g} and {high:g}.")
    for name in ("temperature", "repetition_penalty"):
        value = getattr(sampling, name)
        if 0 < value < _DIVISOR_MIN:
            raise SamplingInvalid(f"{name} is {value}, neither 0 nor {_DIVISOR_MIN:g} or more.")


def draw_word(seed: int, output_index: int) -> int:
    """Return the 64 bits that decide the draw of one output index."""
    key = struct.pack("<QQ", seed, output_index)
    return int.from_bytes(hashlib.sha256(b"antiphon/v1/draw" + key).digest()[:8], "big")


class SamplerState:
    """The parameters of one sequence, and the tokens so far as far as sampling needs them."""

    def __init__(
        self, sampling: Sampling, context: Sequence[int] = (), output_index: int = 0
    ) -> None:
        """Start behind `context`, every token so far, at an index counted from the turn's start.

        Raises SamplingInvalid.
        """
        check_sampling(sampling)
        self.sampling = sampling
        self.output_index = output_index
        self._penalties = _Penalties(sampling, context) if _penalises(sampling) else None

    @property
    def word(self) -> int:
        """The 64 bits that decide the next draw."""
        return draw_word(self.sampling.seed, self.output_index)

    def add(self, token_id: int) -> None:
        """Count the token chosen last."""
        self.output_index += 1
        if self._penalties is not None:
            self._penalties.add(token_id)

    def scores(self, logits: Logits, mask: Mask | None = None) -> Logits:
        """Return logits [V] with mask and penalties applied; the array given is not changed."""
        if mask is None and self._penalties is None:
            return logits
        scores = logits.copy()
        if mask is not None:
            np.copyto(scores, -np.inf, where=~_bits(mask, len(logits)))
        if self._penalties is not None:
            self._penalties.apply(scores)
        return scores


def _bits(mask: Mask, count: int) -> npt.NDArray[np.bool_]:
    octets = np.ascontiguousarray(mask, "<i4").view(np.uint8)
    return np.unpackbits(octets, count=count, bitorder="little").view(np.bool_)


def _penalises(sampling: Sampling) -> bool:
    changes = sampling.presence_penalty or sampling.frequency_penalty
    return bool(changes) or sampling.repetition_penalty not in (0, 1)


class _Penalties:
    """How often each token is in the window, token by token; memory grows with distinct ones."""

    def __init__(self, sampling: Sampling, context: Sequence[int]) -> None:
        self._repetition = sampling.repetition_penalty or 1.0
        self._presence = sampling.presence_penalty
        self._frequency = sampling.frequency_penalty
        self._width = sampling.penalty_window
        window = context[-self._width :] if self._width else context
        self._leaving = deque(window if self._width else ())
        ids, counts = np.unique(np.asarray(window, np.int64), return_counts=True)
        self._slots = {token_id: slot for slot, token_id in enumerate(ids.tolist())}
        self._ids, self._counts = ids, counts.astype(np.float64)

    def add(self, token_id: int) -> None:
        slot = self._slots.setdefault(token_id, len(self._slots))
        if slot == len(self._ids):
            more = slot + 64
            self._ids = np.concatenate([self._ids, np.zeros(more, np.int64)])
            self._counts = np.concatenate([self._counts, np.zeros(more)])
        self._ids[slot] = token_id
        self._counts[slot] += 1
        if self._width:
            self._leaving.append(token_id)
            if len(self._leaving) > self._width:
                self._counts[self._slots[self._leaving.popleft()]] -= 1

    def apply(self, scores: Logits) -> None:
        """Lower the scores of tokens in the window, in place."""
        present = np.flatnonzero(self._counts)
        ids, counts = self._ids[present], self._counts[present]
        seen = scores[ids].astype(np.float64)
        absent = np.isneginf(seen)
        seen = np.where(seen > 0, seen / self._repetition, seen * self._repetition)
        seen = seen - counts * self._frequency - self._presence
        seen = np.clip(seen, -_SCORE_MAX, _SCORE_MAX)
        seen[absent] = -np.inf
        scores[ids] = seen
