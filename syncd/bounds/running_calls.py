"""The unary calls that run: their number per key and in all (DECISIONS D389).

Pure. A call holds its request until it is answered, and budgets charge work, not waiting.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from replica.ids import PublicKey
from replica.limits import CALLS_MAX, CALLS_PER_KEY_MAX
from replica.refusals import RateLimited

RETRY_AFTER_S = 1.0


class RunningCalls:
    """The unary calls of each key."""

    def __init__(self, per_key_max: int = CALLS_PER_KEY_MAX, total_max: int = CALLS_MAX) -> None:
        """Allow so many at a time of one key and of all keys."""
        self._per_key_max = per_key_max
        self._total_max = total_max
        self._of: Counter[PublicKey] = Counter()
        self._total = 0

    def begin(self, peer: PublicKey) -> None:
        """Count a call; `end` it. Raises RateLimited if the key, or all keys, have too many.

        Of the calls beyond half of the total, a key has no more than one, so that one with
        few is never kept out by one with many.
        """
        running = self._of[peer]
        is_crowded = self._total >= self._total_max // 2
        if running >= self._per_key_max:
            raise RateLimited(f"{running} calls of this key run", retry_after_s=RETRY_AFTER_S)
        if (running and is_crowded) or self._total >= self._total_max:
            raise RateLimited(f"{self._total} calls of all keys run", retry_after_s=RETRY_AFTER_S)
        self._of[peer] += 1
        self._total += 1

    def end(self, peer: PublicKey) -> None:
        """Count a call no more."""
        self._total -= 1
        self._of[peer] -= 1
        if not self._of[peer]:
            del self._of[peer]

    @contextmanager
    def count(self, peer: PublicKey) -> Iterator[None]:
        """Count a call until the context ends. Raises RateLimited as `begin` does."""
        self.begin(peer)
        try:
            yield
        finally:
            self.end(peer)
