"""Whose work takes the next step of a busy hub: the payer's that had least lately (LINK-92).

Pure. Pools come first, then the keys of a pool, as in budget.py: strangers, whose keys are
free, are one payer. Each payer has a queue of its own. So a key with a hundred calls waits
as long as one with a single call, and one that did nothing lately passes all others.
"""

from collections import deque
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import Generic, TypeVar

from syncd.shares import Payer, Shares

Waiting = TypeVar("Waiting")
Item = TypeVar("Item")


@dataclass(slots=True)
class _Order(Generic[Item]):
    """Items by the time they had when they entered, each at most once."""

    heap: list[tuple[float, int, Item]] = field(default_factory=list)
    entered: set[Item] = field(default_factory=set)
    serial: "count[int]" = field(default_factory=count)

    def enter(self, item: Item, spent: float) -> None:
        if item not in self.entered:
            self.entered.add(item)
            heappush(self.heap, (spent, next(self.serial), item))

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
        order.enter(payer, self._spent.of(payer, now))
        self._enter_pool(payer.pool, now)

    def _enter_pool(self, pool: bytes, now: float) -> None:
        order = self._payers.get(pool)
        if order is not None and order.heap:
            self._pools.enter(pool, self._spent.of_pool(pool, now))
        elif order is not None:
            del self._payers[pool]
