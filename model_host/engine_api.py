"""The seam between the host and what computes: an engine (spec/07-host §5).

The host's own modules import this, not torch. `step` is the only way in: prefill, decoding
and verification differ in the batch alone, so that they can't differ in the result. The
loops over several steps are the caller's (model_host/prefill.py). Calls are synchronous and
not thread-safe: one thread owns an engine, its caches and its pool.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from model_host.kv import KVCache, Namespace
from model_host.model_config import ModelConfig

Logits = npt.NDArray[np.float32]

CHUNK_TOKENS = 512
"""Most new tokens of one step, those of all its slices together."""


@dataclass(frozen=True, slots=True)
class Slice:
    """New tokens of one context: `ids`, at least one, follow what its cache holds.

    `logits` says for how many of the last rows logits are wanted.
    """

    cache: KVCache
    ids: Sequence[int]
    logits: int = 1


class Engine(Protocol):
    """A model that turns tokens into logits, with one KV cache per context."""

    @property
    def config(self) -> ModelConfig:
        """Return the model's configuration."""

    @property
    def dtype(self) -> str:
        """Return the number format, bf16 or fp32."""

    @property
    def numerics_class(self) -> bytes:
        """Return the digest of the canary computation, 32 bytes."""

    @property
    def bitwise(self) -> bool:
        """Say whether the self-test passed: derived state then never changes a bit."""

    def namespace(self, salt: bytes) -> Namespace:
        """Return what pages computed here are valid for, under a salt."""

    def new_cache(self, claim: Callable[[int], None] | None = None) -> KVCache:
        """Return an empty cache; `claim(bytes)` is asked before each growth."""

    def step(self, batch: Sequence[Slice]) -> list[Logits]:
        """Append the new tokens of each slice to its cache; return its logits, [n, V].

        A batch has 1 to CHUNK_TOKENS new tokens, and each cache once at most. Row i of the
        n rows of a slice follows its token len(ids) - n + i. On return the caches hold the
        new positions; on any exception they are as before. Raises ContextTooLong,
        CacheBudgetExceeded or CacheBusy.
        """
