"""The memory of keys and values, as the host sees it (spec/08-checkpoint §5).

Derived state, which may be discarded at any time. The host and the checkpoint files
handle bytes; their meaning is known to the engine alone.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

SLAB_TOKENS = 512

Bytes = npt.NDArray[np.uint8]


class SlabMemory(Protocol):
    """Slabs of 512 positions over all layers, numbered from 0; a free slab is all zero.

    Memory is used up to the last 64-token group written, not by the whole slab. Not thread-safe.
    """

    @property
    def slabs(self) -> int:
        """Return the number of slabs there are."""

    @property
    def bytes_per_token(self) -> int:
        """Return the bytes of one position over all layers."""

    def copy(self, source: int, target: int, tokens: int) -> None:
        """Copy the first `tokens` positions of a slab to another."""

    def clear(self, slab: int, start: int = 0) -> None:
        """Zero the positions of a slab from `start`, and give their memory back."""

    def read(self, slab: int, start: int, stop: int) -> Bytes:
        """Copy positions out, as the bytes of [L, 2, H_kv, stop - start, D]."""

    def write(self, slab: int, start: int, stop: int, payload: Bytes) -> None:
        """Copy positions in; the inverse of `read`."""


class PageTable(Protocol):
    """The slabs of one sequence: slab i holds its positions 512 i to 512 i + 511."""

    @property
    def slabs(self) -> Sequence[int]:
        """Return the slab numbers, in the order of positions."""

    @property
    def tokens(self) -> int:
        """Return the number of positions that hold keys and values."""
