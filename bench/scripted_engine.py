"""A scripted engine, to measure a host without the arithmetic of a model."""

from collections.abc import Callable, Sequence

import numpy as np

from model_host.engine_api import Logits, Slice
from model_host.kv.cache import Bytes
from model_host.kv.namespace import Namespace
from model_host.model_config import ModelConfig


class CountingCache:
    """A KV cache that holds only a count of tokens."""

    bytes_per_token = 1

    def __init__(self) -> None:
        self.tokens = 0
        self.said = 0

    @property
    def nbytes(self) -> int:
        return self.tokens

    def reserve(self, tokens: int) -> None:
        """Reserve nothing."""

    def commit(self, tokens: int) -> None:
        self.tokens = tokens

    def truncate(self, tokens: int) -> None:
        self.tokens, self.said = tokens, 0

    def read(self, start: int, stop: int) -> Bytes:
        return np.zeros(stop - start, np.uint8)

    def write(self, start: int, stop: int, payload: Bytes) -> None:
        """Release nothing."""


class ScriptedEngine:
    """Returns the tokens of `script`: the next one after a known prefix, else the first."""

    numerics = "scripted"
    numerics_class = b"scripted".ljust(32, b".")
    bitwise = True

    def __init__(self, config: ModelConfig, script: Sequence[int]) -> None:
        self.config = config
        self._script = script

    def namespace(self, salt: bytes) -> Namespace:
        empty = bytes(32)
        return Namespace(empty, empty, "", "", "", "", "", self.numerics_class, salt)

    def new_cache(self, _claim: Callable[[int], None] | None = None) -> CountingCache:
        return CountingCache()

    def step(self, batch: Sequence[Slice]) -> list[Logits]:
        return [self._append(part) for part in batch]

    def _append(self, part: Slice) -> Logits:
        cache = part.cache
        assert isinstance(cache, CountingCache)
        assert part.logits <= 1, "a script has one row"
        cache.commit(cache.tokens + len(part.ids))
        repeats = cache.said and list(part.ids) == [self._script[cache.said - 1]]
        cache.said = cache.said + 1 if repeats else 1
        rows = np.zeros((part.logits, self.config.vocab), np.float32)
        rows[:, self._script[cache.said - 1]] = 1
        return rows
