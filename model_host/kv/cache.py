"""The KV cache of one context, as the host sees it (spec/08-checkpoint).

Derived state, discard at will. The host and the checkpoint files see bytes;
what computes with them is the engine's own.
"""

from typing import Protocol

import numpy as np
import numpy.typing as npt

SLAB_TOKENS = 512

Bytes = npt.NDArray[np.uint8]


class KVCache(Protocol):
    """Keys and values of the first `tokens` positions; everything beyond them is zero."""

    @property
    def tokens(self) -> int:
        """Return how many positions are valid."""

    @property
    def nbytes(self) -> int:
        """Return the memory held, in bytes."""

    @property
    def bytes_per_token(self) -> int:
        """Return the bytes one position takes over all layers."""

    def reserve(self, tokens: int) -> None:
        """Make room for `tokens` positions; the caller may now write up to there.

        Raises CacheBudgetExceeded or CacheBusy; the cache is as before then.
        """

    def commit(self, tokens: int) -> None:
        """Declare the first `tokens` positions written and valid."""

    def truncate(self, tokens: int) -> None:
        """Keep the first `tokens` positions and zero whatever lies or was begun beyond."""

    def read(self, start: int, stop: int) -> Bytes:
        """Copy positions out, as the bytes of [L, 2, H_kv, stop - start, D]."""

    def write(self, start: int, stop: int, payload: Bytes) -> None:
        """Copy positions in, reserved but not yet committed; the inverse of `read`."""
