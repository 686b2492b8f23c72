"""The interface between the host and its engine, which computes (spec/07-host §5).

The host's own modules import this, not torch. `step` is the only entry point: prefill,
decoding and verification differ in the batch alone, so their results can't differ. Loops
over several steps belong to the caller (model_host/prefill.py). Calls are synchronous and
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
"""Most new tokens of one step, over all its slices."""


@dataclass(frozen=True, slots=True)
class Slice:
    """New tokens of one context: `ids`, at least one, follow the tokens of its cache.

    `logits` is the number of last rows for which logits are wanted.
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
    def numerics(self) -> str:
        """Return the name of the number formats: q4, bf16 or fp32 (spec/07-host §7)."""

    @property
    def numerics_class(self) -> bytes:
        """Return the digest of the canary computation, 32 bytes."""

    @property
    def bitwise(self) -> bool:
        """Say whether the self-test passed: derived state then never changes a bit."""

    def namespace(self, salt: bytes) -> Namespace:
        """Return the namespace of pages computed here, under a salt."""

    def new_cache(self, claim: Callable[[int], None] | None = None) -> KVCache:
        """Return an empty cache; `claim(bytes)` is called before each growth and may refuse it."""

    def step(self, batch: Sequence[Slice]) -> list[Logits]:
        """Append the new tokens of each slice to its cache; return its logits, [n, V].

        A batch has 1 to CHUNK_TOKENS new tokens, and each cache at most once. Row i of the
        n rows of a slice follows its token len(ids) - n + i. On return the caches hold the
        new positions; on any exception they are as before. Raises ContextTooLong,
        CacheBudgetExceeded or CacheBusy.
        """
