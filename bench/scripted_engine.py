"""A scripted engine, to measure a host without the arithmetic of a model."""

from collections.abc import Sequence

import numpy as np

from model_host.engine_api import Logits, Slice
from model_host.kv import Bytes, Namespace
from model_host.model_config import ModelConfig


class CountingMemory:
    """A SlabMemory that holds no bytes."""

    slabs = 4_096
    bytes_per_token = 1

    def copy(self, source: int, target: int, tokens: int) -> None:
        """Copy nothing."""

    def clear(self, slab: int, start: int = 0) -> None:
        """Clear nothing."""

    def read(self, slab: int, start: int, stop: int) -> Bytes:
        return np.zeros(stop - start, np.uint8)

    def write(self, slab: int, start: int, stop: int, payload: Bytes) -> None:
        """Write nothing."""


class ScriptedEngine:
    """Returns the tokens of `script`: the next one after a token of it, else the first.

    Its place in the script is kept per page table.
    """

    numerics = "scripted"
    numerics_class = b"scripted".ljust(32, b".")
    bitwise = False  # so that the host guesses no tokens

    def __init__(self, config: ModelConfig, script: Sequence[int]) -> None:
        self.config = config
        self.memory = CountingMemory()
        self._script = script
        self._said: dict[int, tuple[int, int]] = {}  # per table: its tokens, and tokens said

    def namespace(self, salt: bytes) -> Namespace:
        empty = bytes(32)
        return Namespace(empty, empty, "", "", "", "", "", self.numerics_class, salt)

    def step(self, batch: Sequence[Slice]) -> list[Logits]:
        return [self._append(part) for part in batch]

    def _append(self, part: Slice) -> Logits:
        assert len(part.wanted) <= 1, "a script has one row"
        tokens, said = self._said.get(id(part.pages), (0, 0))
        repeats = said and list(part.ids) == [self._script[said - 1]]
        said = said + 1 if repeats and tokens == part.pages.tokens else 1
        self._said[id(part.pages)] = (part.pages.tokens + len(part.ids), said)
        rows = np.zeros((len(part.wanted), self.config.vocab), np.float32)
        rows[:, self._script[said - 1]] = 1
        return rows
