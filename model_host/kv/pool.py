"""The KV caches in memory, within one byte budget (spec/08-checkpoint)."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from model_host.errors import CacheBudgetExceeded, CacheBusy
from model_host.kv.cache import KVCache


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
