"""Whose work takes the next step of a busy hub, in fair queues (LINK-92).

Pure. Pools come first, then the keys of a pool, as in budget.py: strangers, whose keys are
free, are one payer. Each payer has a queue of its own. So a key with a hundred calls waits
as long as one with a single call, and one that waited for nothing comes before a second
step of those that wait.

The order is that of start-time fair queueing. Each step starts, in virtual time, where its
payer's last one ended, but not before the step that is served now. So whoever waits gets equal
time from then on, and what anybody did or left undone before gives neither debts nor credit.
"""

from collections import deque
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Generic, TypeVar

from syncd.bounds.shares import Payer

Waiting = TypeVar("Waiting")
Item = TypeVar("Item")

REMEMBERED_MAX = 1_024
"""Payers of a pool, and pools, whose last step is remembered while they wait for nothing."""


@dataclass(slots=True)
class _Order(Generic[Item]):
    """Items by the virtual time at which their next step starts, each at most once."""

    heap: list[tuple[float, int, Item]] = field(default_factory=list)
    entered: set[Item] = field(default_factory=set)
    serial: "count[int]" = field(default_factory=count)
    now: float = 0.0
    """Virtual start of the step served last."""
    ends: dict[Item, float] = field(default_factory=dict)
    """Virtual end of the last step of each item, where it is not over."""

    @property
    def least(self) -> float:
        return self.heap[0][0]

    def start_of(self, item: Item) -> float:
        return max(self.now, self.ends.get(item, 0.0))

    def enter(self, item: Item) -> None:
        if item not in self.entered:
            self.entered.add(item)
            heappush(self.heap, (self.start_of(item), next(self.serial), item))

    def leave(self, item: Item) -> None:
        self.entered.discard(item)
        self.heap = [entry for entry in self.heap if entry[2] != item]
        heapify(self.heap)

    def take(self) -> Item:
        self.now, _, item = heappop(self.heap)
        self.entered.discard(item)
        return item

    def note(self, item: Item, seconds: float) -> None:
        self.now = max(self.now, self.ends.get(item, 0.0))
        self.ends[item] = self.now + seconds
        if len(self.ends) > REMEMBERED_MAX:
            over = {one: end for one, end in self.ends.items() if end > self.now}
            self.ends = over if len(over) <= REMEMBERED_MAX // 2 else {}


class StepQueue(Generic[Waiting]):
    """Those that wait for a step, by payer, and the time that each payer had lately."""

    def __init__(self) -> None:
        """Start with nobody waiting."""
        self._waiting: dict[Payer, deque[Waiting]] = {}
        self._pools: _Order[bytes] = _Order()
        self._payers: dict[bytes, _Order[Payer]] = {}
        """The payers of each pool."""

    def __bool__(self) -> bool:
        """Say whether anybody may be next."""
        return bool(self._pools.heap)

    def precedes(self, payer: Payer) -> bool:
        """Say whether a payer of whom nothing waits comes before all that wait."""
        if payer in self._waiting or not self._pools.heap:
            return payer not in self._waiting
        pools, payers = self._pools, self._payers.get(payer.pool)
        if payer.pool in pools.entered and payers is not None:
            is_first = pools.heap[0][2] == payer.pool
            return is_first and payers.start_of(payer) < payers.least
        return pools.start_of(payer.pool) < pools.least

    def add(self, payer: Payer, waiting: Waiting) -> None:
        """Let work wait behind its payer's other work."""
        if payer not in self._waiting:
            self._waiting[payer] = deque()
            self._enter(payer)
        self._waiting[payer].append(waiting)

    def take(self) -> tuple[Payer, Waiting]:
        """Return the next in order; `note` its time before the next is taken."""
        payer = self._payers[self._pools.take()].take()
        return payer, self._waiting[payer].popleft()

    def drop_last(self, payer: Payer) -> Waiting:
        """Return the last work of a payer of whom some waits, which is no longer to be served."""
        queue = self._waiting[payer]
        dropped = queue.pop()
        if not queue:
            del self._waiting[payer]
            self._payers[payer.pool].leave(payer)
            if not self._payers[payer.pool].heap:
                self._pools.leave(payer.pool)
        return dropped

    def note(self, payer: Payer, seconds: float) -> None:
        """Count the time of a payer's step, and let its next work enter the order."""
        pool = payer.pool
        self._pools.note(pool, seconds)
        payers = self._payers.get(pool)
        if payers is None:
            payers = self._payers[pool] = _Order()
        payers.note(payer, seconds)
        queue = self._waiting.get(payer)
        if queue:
            self._enter(payer)
        elif queue is not None:
            del self._waiting[payer]
        if payers.heap:
            self._pools.enter(pool)
        if len(self._payers) > REMEMBERED_MAX:
            self._payers = {pool: order for pool, order in self._payers.items() if order.heap}

    def _enter(self, payer: Payer) -> None:
        self._payers.setdefault(payer.pool, _Order()).enter(payer)
        self._pools.enter(payer.pool)
