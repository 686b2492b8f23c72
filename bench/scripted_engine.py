"""An engine that says what a script says: everything of a host but the arithmetic."""

from collections.abc import Callable, Sequence

import numpy as np

from model_host.engine_api import Logits, Progress, Scored
from model_host.kv.cache import Bytes
from model_host.kv.namespace import Namespace
from model_host.model_config import ModelConfig


class CountingCache:
    """A KV cache that holds nothing but a count of tokens."""

    bytes_per_token = 1

    def __init__(self) -> None:
        self.tokens = 0

    @property
    def nbytes(self) -> int:
        return self.tokens

    def reserve(self, tokens: int) -> None:
        """Need no room."""

    def commit(self, tokens: int) -> None:
        self.tokens = tokens

    def truncate(self, tokens: int) -> None:
        self.tokens = tokens

    def read(self, start: int, stop: int) -> Bytes:
        return np.zeros(stop - start, np.uint8)

    def write(self, start: int, stop: int, payload: Bytes) -> None:
        """Hold nothing."""


class ScriptedEngine:
    """Says `script` token by token, from its start after every prefill."""

    dtype = "scripted"
    numerics_class = b"scripted".ljust(32, b".")
    bitwise = True

    def __init__(self, config: ModelConfig, script: Sequence[int]) -> None:
        self.config = config
        self._script = script
        self._at = 0

    def namespace(self, salt: bytes) -> Namespace:
        empty = bytes(32)
        return Namespace(empty, empty, "", "", "", "", "", self.numerics_class, salt)

    def new_cache(self, _claim: Callable[[int], None] | None = None) -> CountingCache:
        return CountingCache()

    def prefill(
        self,
        cache: CountingCache,
        ids: Sequence[int],
        on_progress: Progress | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> Logits:
        cache.commit(cache.tokens + len(ids))
        self._at = 0
        return self._next()

    def decode(self, cache: CountingCache, _token_id: int) -> Logits:
        cache.commit(cache.tokens + 1)
        return self._next()

    def decode_batch(self, tokens: Sequence[tuple[CountingCache, int]]) -> list[Logits]:
        return [self.decode(cache, token_id) for cache, token_id in tokens]

    def score(
        self,
        cache: CountingCache,
        ids: Sequence[int],
        on_scored: Callable[[Scored], None],
        cancelled: Callable[[], bool] | None = None,
    ) -> None:
        raise AssertionError("a script has no scores")

    def _next(self) -> Logits:
        logits = np.zeros(self.config.vocab, np.float32)
        logits[self._script[self._at]] = 1
        self._at += 1
        return logits
