"""The work on one log: counted, so that it can be charged, and divided, so that others run between.

Pure (LIM-9, LINK-92). One change of the membership may concern all entries of a log. Whoever owns
the event loop sets `pause`: long work calls it again and again and goes on behind it. A
log that pauses is between two states, and nobody else may look at it meanwhile.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from heapq import merge
from typing import Any, TypeVar

TURN_UNITS = 64
"""Entries looked at between two calls of `pause`: some 0.1 to 1 ms."""
_SORTED_AT_ONCE = 4_096
"""Items sorted in one go, some 3 ms."""

_Item = TypeVar("_Item")


class Meter:
    """Counts the entries that were judged or folded beyond their own admission."""

    def __init__(self) -> None:
        """Start at 0, with work that never pauses."""
        self.counted = 0
        """Number of entries judged or folded so far."""
        self.pause: Callable[[], None] | None = None
        """Called every TURN_UNITS entries where work may pause; it may take its time."""
        self.is_paused = False
        """Whether work pauses now: what is folded is between two states."""
        self._passed = 0
        self._may_pause = False

    def count(self, units: int = 1) -> None:
        """Count entries that were judged or folded; pause if it is time to."""
        self.counted += units
        self.turn(units)

    def turn(self, units: int = 1) -> None:
        """Pause if it is time to, behind work that counts already as something else."""
        self._passed += units
        if self._passed >= TURN_UNITS:
            self._passed = 0
            if self._may_pause and self.pause is not None:
                self.is_paused = True
                try:
                    self.pause()
                finally:
                    self.is_paused = False

    @property
    def may_pause(self) -> bool:
        """Whether the work that runs now may pause."""
        return self._may_pause and self.pause is not None

    def __enter__(self) -> None:
        """Let the work of the context pause: it looks at nothing that others may change."""
        self._may_pause = True

    def __exit__(self, *_raised: object) -> None:
        """End the work that may pause."""
        self._may_pause = False

    def turns(self, items: Iterable[_Item]) -> Iterable[_Item]:
        """Return items to iterate over, with turns between many."""
        if isinstance(items, Collection) and len(items) < TURN_UNITS:
            self.turn(len(items))
            return items
        return self._turns(items)

    def _turns(self, items: Iterable[_Item]) -> Iterator[_Item]:
        for item in items:
            yield item
            self.turn()

    def sorted(self, items: Iterable[_Item], key: Callable[[_Item], Any]) -> list[_Item]:
        """Return items in order, as `sorted` does, with turns."""
        left = list(items)
        if len(left) <= _SORTED_AT_ONCE:
            return sorted(left, key=key)
        runs = []
        for at in range(0, len(left), _SORTED_AT_ONCE):
            runs.append(sorted(left[at : at + _SORTED_AT_ONCE], key=key))
            self.turn(TURN_UNITS)
        return list(self.turns(merge(*runs, key=key)))
