"""Counts by key, and which key has most.

Pure. A count changes by one at a time, so the most is found without a look at all keys.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Tally(Generic[Key]):
    """How many each key has; one without any is not kept."""

    def __init__(self) -> None:
        """Start with no keys."""
        self._counts: dict[Key, int] = {}
        self._with: dict[int, dict[Key, None]] = {}
        """The keys that have so many, in the order in which they got there."""
        self._most = 0

    def __bool__(self) -> bool:
        """Say whether any key has one."""
        return bool(self._counts)

    def of(self, key: Key) -> int:
        """Return how many a key has."""
        return self._counts.get(key, 0)

    def add(self, key: Key) -> None:
        """Count one more of a key."""
        self._move(key, self.of(key), self.of(key) + 1)

    def remove(self, key: Key) -> None:
        """Count one less of a key that has one."""
        self._move(key, self._counts[key], self._counts[key] - 1)

    def heaviest(self) -> Key:
        """Return the key with most, of several the first that got there; some key has one."""
        return next(iter(self._with[self._most]))

    def _move(self, key: Key, before: int, now: int) -> None:
        if before:
            del self._with[before][key]
            if not self._with[before]:
                del self._with[before]
        if now:
            self._counts[key] = now
            self._with.setdefault(now, {})[key] = None
        else:
            del self._counts[key]
        if now > self._most or (before == self._most and before not in self._with):
            self._most = now
