"""Whose work takes the next step of a busy hub: the payer's that had least lately (LINK-92).

Pure. Pools come first, then the keys of a pool, as in budget.py: strangers, whose keys are
free, are one payer. Each payer has a queue of its own. So a key with a hundred calls waits
as long as one with a single call, and one that did nothing lately passes all others.
"""

from collections import deque
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from math import log2
from typing import Generic, TypeVar

from syncd.shares import HALF_LIFE_S, Payer, Shares

Waiting = TypeVar("Waiting")
Item = TypeVar("Item")


def _rank(spent: float, now: float) -> float:
    """Return a number that orders recent times as they compare at any later time.

    All of them halve at once, so one that was ranked long ago passes those ranked now.
    """
    return log2(max(1.0, spent)) + now / HALF_LIFE_S


@dataclass(slots=True)
class _Order(Generic[Item]):
    """Items by the rank that they had when they entered, each at most once."""

    heap: list[tuple[float, int, Item]] = field(default_factory=list)
    entered: set[Item] = field(default_factory=set)
    serial: "count[int]" = field(default_factory=count)

    @property
    def least(self) -> float:
        return self.heap[0][0]

    def enter(self, item: Item, rank: float) -> None:
        if item not in self.entered:
            self.entered.add(item)
            heappush(self.heap, (rank, next(self.serial), item))

    def take(self) -> Item:
        item = heappop(self.heap)[2]
        self.entered.discard(item)
        return item


class StepQueue(Generic[Waiting]):
    """Those that wait for a step, by payer, and the time that each payer had lately."""

    def __init__(self) -> None:
        """Start with nobody waiting."""
        self._spent = Shares()
        self._waiting: dict[Payer, deque[Waiting]] = {}
        self._pools: _Order[bytes] = _Order()
        self._payers: dict[bytes, _Order[Payer]] = {}
        """The payers of each pool that may be next in it."""

    def __bool__(self) -> bool:
        """Say whether anybody may be next."""
        return bool(self._pools.heap)

    def precedes(self, payer: Payer, now: float) -> bool:
        """Say whether a payer of whom nothing waits had less lately than all that wait."""
        if payer in self._waiting or not self._pools.heap:
            return payer not in self._waiting
        pools, payers = self._pools, self._payers.get(payer.pool)
        if payer.pool in pools.entered and payers is not None:
            is_first = pools.heap[0][2] == payer.pool
            return is_first and _rank(self._spent.of(payer, now), now) < payers.least
        return _rank(self._spent.of_pool(payer.pool, now), now) < pools.least

    def add(self, payer: Payer, waiting: Waiting, now: float) -> None:
        """Let work wait behind its payer's other work; `now` is in seconds."""
        if payer not in self._waiting:
            self._waiting[payer] = deque()
            self._enter(payer, now)
        self._waiting[payer].append(waiting)

    def take(self) -> tuple[Payer, Waiting]:
        """Return the next in order; `note` its time before the next is taken."""
        payer = self._payers[self._pools.take()].take()
        return payer, self._waiting[payer].popleft()

    def note(self, payer: Payer, seconds: float, now: float) -> None:
        """Count the time of a payer's step, and let its next work enter the order."""
        self._spent.add(payer, int(1e6 * seconds), now)
        queue = self._waiting.get(payer)
        if queue:
            self._enter(payer, now)
        elif queue is not None:
            del self._waiting[payer]
        self._enter_pool(payer.pool, now)

    def _enter(self, payer: Payer, now: float) -> None:
        order = self._payers.setdefault(payer.pool, _Order())
        order.enter(payer, _rank(self._spent.of(payer, now), now))
        self._enter_pool(payer.pool, now)

    def _enter_pool(self, pool: bytes, now: float) -> None:
        order = self._payers.get(pool)
        if order is not None and order.heap:
            self._pools.enter(pool, _rank(self._spent.of_pool(pool, now), now))
        elif order is not None:
            del self._payers[pool]
