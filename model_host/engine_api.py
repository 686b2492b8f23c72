"""The interface between the host and its engine, which computes (spec/07-host §5).

The host's own modules import this, not torch. `step` is the only entry point: prefill,
decoding and verification differ in the batch alone, so their results can't differ. Loops
over several steps belong to the caller (model_host/batching/batcher.py). Calls are synchronous and
not thread-safe: one thread owns an engine and its memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from model_host.kv import Namespace, PageTable, SlabMemory
from model_host.model_config import ModelConfig

Logits = npt.NDArray[np.float32]

CHUNK_TOKENS = 512
"""Most new tokens of one step, over all its slices."""


@dataclass(frozen=True, slots=True)
class Slice:
    """New tokens of one sequence: `ids`, at least one, follow the tokens of its pages.

    `logits` says for which rows logits are wanted: how many last ones, or which, ascending.
    """

    pages: PageTable
    ids: Sequence[int]
    logits: int | Sequence[int] = 1

    @property
    def wanted(self) -> Sequence[int]:
        """The rows for which logits are wanted, a range where they are the last ones."""
        if isinstance(self.logits, int):
            return range(max(len(self.ids) - self.logits, 0), len(self.ids))
        return self.logits


class Engine(Protocol):
    """A model that turns tokens into logits, and the memory of its keys and values."""

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

    @property
    def memory(self) -> SlabMemory:
        """Return the memory of keys and values that `step` computes in."""

    def step(self, batch: Sequence[Slice]) -> list[Logits]:
        """Compute the new positions of each slice into its pages; return its logits, [n, V].

        A batch has 1 to CHUNK_TOKENS new tokens. Row i of the n rows of a slice follows its
        token `wanted[i]`. The pages already have slabs for the new positions, and no
        slab that is written belongs to two sequences. The step changes nothing but those
        positions: the caller advances `tokens` afterwards; after an exception they hold
        arbitrary finite numbers. Raises ContextTooLong before it computes.
        """
