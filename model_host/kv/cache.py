"""The KV cache of one context, as the host sees it (spec/08-checkpoint).

Derived state, which may be discarded at any time. The host and the checkpoint files
handle bytes; their meaning is known to the engine alone.
"""

from typing import Protocol

from model_host.kv.memory import SLAB_TOKENS, Bytes

__all__ = ["SLAB_TOKENS", "Bytes", "KVCache"]


class KVCache(Protocol):
    """Keys and values of the first `tokens` positions; all bytes beyond them are zero."""

    @property
    def tokens(self) -> int:
        """Return the number of valid positions."""

    @property
    def nbytes(self) -> int:
        """Return the memory held, in bytes."""

    @property
    def bytes_per_token(self) -> int:
        """Return the bytes of one position over all layers."""

    def reserve(self, tokens: int) -> None:
        """Reserve memory for `tokens` positions, up to which the caller may then write.

        Raises CacheBudgetExceeded or CacheBusy; the cache is then unchanged.
        """

    def commit(self, tokens: int) -> None:
        """Declare the first `tokens` positions written and valid."""

    def truncate(self, tokens: int) -> None:
        """Keep the first `tokens` positions; zero all others, committed or not."""

    def read(self, start: int, stop: int) -> Bytes:
        """Copy positions out, as the bytes of [L, 2, H_kv, stop - start, D]."""

    def write(self, start: int, stop: int, payload: Bytes) -> None:
        """Copy positions in that are reserved and not committed; the inverse of `read`."""
