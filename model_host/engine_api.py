"""The seam between the host and what computes: an engine (spec/07-host).

The host's own modules import this, not torch. Calls are synchronous and not thread-safe:
one thread owns an engine, its caches and its pool.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from model_host.kv import KVCache, Namespace
from model_host.model_config import ModelConfig

Logits = npt.NDArray[np.float32]
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Scored:
    """Logits of a run of positions: row i follows token `start + i` of the context."""

    start: int
    logits: Logits  # [n, V]


class Engine(Protocol):
    """A model that turns tokens into logits, with one KV cache per conversation."""

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

    def prefill(
        self,
        cache: KVCache,
        ids: Sequence[int],
        on_progress: Progress | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> Logits:
        """Append `ids`, at least one, to the cache in chunks; return the last logits [V].

        `on_progress(done, total)` is called after each chunk, `cancelled()` before each.
        Raises PrefillCancelled, ContextTooLong, CacheBudgetExceeded or CacheBusy; the
        cache then keeps the chunks that were finished.
        """

    def decode(self, cache: KVCache, token_id: int) -> Logits:
        """Append one token; return the logits after it, [V]. Raises as `prefill` does."""

    def decode_batch(self, tokens: Sequence[tuple[KVCache, int]]) -> list[Logits]:
        """Append one token to each of several caches in one step; bits as by `decode`."""

    def score(
        self,
        cache: KVCache,
        ids: Sequence[int],
        on_scored: Callable[[Scored], None],
        cancelled: Callable[[], bool] | None = None,
    ) -> None:
        """Append `ids` as `prefill` does and hand out the logits after every one of them.

        `on_scored` gets up to 512 rows at a time, in order; 4 B * V each.
        """
