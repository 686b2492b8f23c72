"""KV caches in memory (spec/08-checkpoint): derived state, discard at will.

A cache holds one conversation's keys and values for one namespace. The engine and the
checkpoint files see only `KVCache`, so that a paged one can take its place.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from model_host.errors import CacheBudgetExceeded, CacheBusy
from model_host.gguf_file import ModelConfig

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

    def layer(self, index: int) -> torch.Tensor:
        """Return keys and values of a layer, [2, H_kv, T, D], T a multiple of 512.

        The view is good until the next `reserve`.
        """

    def commit(self, tokens: int) -> None:
        """Declare the first `tokens` positions written and valid."""

    def truncate(self, tokens: int) -> None:
        """Keep the first `tokens` positions and zero whatever lies or was begun beyond."""

    def read(self, start: int, stop: int) -> Bytes:
        """Copy positions out, as the bytes of [L, 2, H_kv, stop - start, D]."""

    def write(self, start: int, stop: int, payload: Bytes) -> None:
        """Copy positions in, reserved but not yet committed; the inverse of `read`."""


class SlabCache:
    """A KVCache of one tensor per layer, [2, H_kv, T, D], grown by slabs of 512 tokens.

    Contiguous along T, because gathering small pages before attention costs milliseconds
    per token. Growth copies layer by layer, so its peak is one layer above the new size.
    """

    def __init__(
        self, config: ModelConfig, dtype: torch.dtype, claim: Callable[[int], None] | None = None
    ) -> None:
        """Start empty; `claim(bytes)` is called before each growth and may refuse it."""
        self._shape = (2, config.kv_heads, config.head_width)
        self._dtype = dtype
        self._claim = claim
        self._layers = [self._zeros(0) for _ in range(config.layers)]
        self._tokens = 0
        self._touched = 0  # positions up to here may hold bytes other than zero

    def _zeros(self, tokens: int) -> torch.Tensor:
        # Attention multiplies what it masks by an exact zero: junk is harmless there, but
        # 0 * NaN is NaN, so memory is never handed out unwritten.
        kinds, heads, width = self._shape
        # Growth can happen inside a decode step, under inference mode. A tensor made there
        # takes no writes outside it, and `truncate` writes outside.
        with torch.inference_mode(False):  # torch takes it by position
            return torch.zeros((kinds, heads, tokens, width), dtype=self._dtype)

    @property
    def tokens(self) -> int:
        """Return how many positions are valid."""
        return self._tokens

    @property
    def bytes_per_token(self) -> int:
        """Return the bytes one position takes over all layers."""
        kinds, heads, width = self._shape
        return len(self._layers) * kinds * heads * width * int(self._dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """Return the memory held, in bytes."""
        return self._layers[0].shape[2] * self.bytes_per_token

    def reserve(self, tokens: int) -> None:
        """Make room for `tokens` positions; see KVCache."""
        held = self._layers[0].shape[2]
        if tokens > held:
            wanted = -(-tokens // SLAB_TOKENS) * SLAB_TOKENS
            if self._claim is not None:
                self._claim((wanted - held) * self.bytes_per_token)
            for index, old in enumerate(self._layers):
                self._layers[index] = self._zeros(wanted)
                self._layers[index][:, :, : self._touched] = old[:, :, : self._touched]
        self._touched = max(self._touched, tokens)

    def layer(self, index: int) -> torch.Tensor:
        """Return keys and values of a layer, [2, H_kv, T, D]; see KVCache."""
        return self._layers[index]

    def commit(self, tokens: int) -> None:
        """Declare the first `tokens` positions written and valid."""
        assert self._tokens <= tokens <= self._touched, "commit follows reserve"
        self._tokens = tokens

    def truncate(self, tokens: int) -> None:
        """Keep the first `tokens` positions and zero the rest; memory stays held."""
        assert 0 <= tokens <= self._tokens, "truncate never extends"
        for layer in self._layers:
            layer[:, :, tokens : self._touched] = 0
        self._tokens = self._touched = tokens

    def read(self, start: int, stop: int) -> Bytes:
        """Copy positions out, as the bytes of [L, 2, H_kv, stop - start, D]."""
        assert 0 <= start <= stop <= self._tokens, "only valid positions are read"
        copy = torch.stack([layer[:, :, start:stop] for layer in self._layers])
        return copy.view(torch.uint8).flatten().numpy()

    def write(self, start: int, stop: int, payload: Bytes) -> None:
        """Copy reserved positions in, from the bytes of [L, 2, H_kv, stop - start, D]."""
        assert self._tokens <= start <= stop <= self._touched, "only reserved positions"
        kinds, heads, width = self._shape
        pages = torch.from_numpy(payload).view(self._dtype)
        for layer, page in zip(
            self._layers, pages.view(-1, kinds, heads, stop - start, width), strict=True
        ):
            layer[:, :, start:stop] = page


class CachePool:
    """The caches of many conversations within one byte budget, least recently used out first.

    Not thread-safe: the scheduler that owns the engine owns the pool. A cache in use is
    never evicted.
    """

    def __init__(self, make: Callable[[Callable[[int], None]], KVCache], budget_bytes: int) -> None:
        """Build caches with `make(claim)`; hold `budget_bytes` at most."""
        self._make = make
        self._budget_bytes = budget_bytes
        self._caches: OrderedDict[bytes, KVCache] = OrderedDict()
        self._uses: dict[bytes, int] = {}
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._caches)

    def __contains__(self, key: bytes) -> bool:
        return key in self._caches

    @property
    def nbytes(self) -> int:
        """Return the memory all caches hold, in bytes."""
        return sum(cache.nbytes for cache in self._caches.values())

    @contextmanager
    def use(self, key: bytes) -> Iterator[KVCache]:
        """Lend the cache of a conversation, made empty if absent, pinned while in use."""
        if key not in self._caches:
            self._caches[key] = self._make(lambda grown: self._claim(key, grown))
        self._caches.move_to_end(key)
        self._uses[key] = self._uses.get(key, 0) + 1
        try:
            yield self._caches[key]
        finally:
            self._uses[key] -= 1
            if not self._uses[key]:
                del self._uses[key]

    def drop(self, key: bytes) -> None:
        """Forget a conversation's cache; nothing happens if there is none.

        Raises CacheBusy while it is in use.
        """
        if key in self._uses:
            raise CacheBusy("The conversation's KV cache is in use.")
        self._caches.pop(key, None)

    def _claim(self, key: bytes, grown_bytes: int) -> None:
        """Make room for a cache that grows, or refuse."""
        if self._caches[key].nbytes + grown_bytes > self._budget_bytes:
            raise CacheBudgetExceeded(
                f"The conversation needs {self._caches[key].nbytes + grown_bytes} bytes of KV "
                f"memory; the host allows {self._budget_bytes}."
            )
        idle = [other for other in self._caches if other != key and other not in self._uses]
        excess = self.nbytes + grown_bytes - self._budget_bytes
        for other in idle:
            if excess <= 0:
                return
            excess -= self._caches.pop(other).nbytes
            self.evictions += 1
        if excess > 0:
            raise CacheBusy("The KV memory is held by conversations that generate now.")
