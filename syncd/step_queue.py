"""Which key's work takes the next step of a busy hub: the one that had least lately (LINK-92).

Pure. Each key has a queue of its own. So a key with a hundred calls waits as long as one
with a single call, and a key that did nothing lately passes all others.
"""

from collections import deque
from heapq import heappop, heappush
from typing import Generic, TypeVar

from replica.ids import PublicKey
from syncd.shares import Payer, Shares

Waiting = TypeVar("Waiting")

_POOL = b"steps"


class StepQueue(Generic[Waiting]):
    """Those that wait for a step, by key, and the time that each key had lately."""

    def __init__(self) -> None:
        """Start with nobody waiting."""
        self._spent = Shares()
        self._waiting: dict[PublicKey, deque[Waiting]] = {}
        self._order: list[tuple[float, int, PublicKey]] = []
        """A heap of the keys that may be next: the time spent, a serial number, the key."""
        self._entered: set[PublicKey] = set()
        self._serial = 0

    def __bool__(self) -> bool:
        """Say whether anybody waits."""
        return bool(self._order)

    def add(self, key: PublicKey, waiting: Waiting, now: float) -> None:
        """Let a key's work wait behind its other work; `now` is in seconds."""
        queue = self._waiting.get(key)
        if queue is None:
            queue = self._waiting[key] = deque()
            self._enter(key, now)
        queue.append(waiting)

    def take(self) -> tuple[PublicKey, Waiting]:
        """Return the next in order; `note` its time before the next is taken."""
        _, _, key = heappop(self._order)
        self._entered.discard(key)
        return key, self._waiting[key].popleft()

    def note(self, key: PublicKey, seconds: float, now: float) -> None:
        """Count the time of a key's step, and let its next work enter the order."""
        self._spent.add(Payer(_POOL, key), int(1e6 * seconds), now)
        queue = self._waiting.get(key)
        if queue is None or key in self._entered:
            return
        if queue:
            self._enter(key, now)
        else:
            del self._waiting[key]

    def _enter(self, key: PublicKey, now: float) -> None:
        self._serial += 1
        self._entered.add(key)
        spent = self._spent.of(Payer(_POOL, key), now)
        heappush(self._order, (spent, self._serial, key))
