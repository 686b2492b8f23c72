"""The recent units of each payer, with the sums of its pool and of all pools.

Pure, and private to budget.py. Recent units of all payers halve in the
same time, so a sum is kept as one number and never added up again: a call costs the same
for one payer and for a hundred thousand.
"""

from collections import deque
from dataclasses import dataclass, field
from math import exp2
from typing import NamedTuple

from replica.ids import PublicKey
from replica.limits import HALF_LIFE_S

FORGOTTEN_UNITS = 50.0
_ROUNDED = 1 + 1e-9
_LOOKS = 2
"""Payers looked at with each charge, in turn: those that did nothing lately are forgotten."""


class Payer(NamedTuple):
    """The key that pays for work, and the pool that it shares with others.

    A tuple: each step of a hub looks several of them up.
    """

    pool: bytes
    """The creator of the conversation, or one of the other pools of budget.py."""
    key: PublicKey


@dataclass(slots=True)
class Recent:
    """Recent units, as they were counted at a time in seconds."""

    units: float = 0.0
    at: float = 0.0

    def now(self, now: float) -> float:
        """Return the units that still count."""
        elapsed = now - self.at
        return self.units * exp2(-elapsed / HALF_LIFE_S) if elapsed > 0 else self.units

    def add(self, units: float, now: float) -> None:
        """Add units that are charged now; negative ones are of a payer that is forgotten."""
        units += self.now(now)
        self.units, self.at = (units if units > 0 else 0.0), now


@dataclass(slots=True)
class _Pool:
    """The payers of one pool, and the sum of their units."""

    recent: Recent = field(default_factory=Recent)
    payers: int = 0


class Shares:
    """The recent units of payers that did something lately."""

    def __init__(self) -> None:
        """Start without payers."""
        self._recent: dict[Payer, Recent] = {}
        self._pools: dict[bytes, _Pool] = {}
        self._all = Recent()
        self._to_look_at: deque[Payer] = deque()

    def __contains__(self, payer: Payer) -> bool:
        """Say whether a payer did anything lately."""
        return payer in self._recent

    def of(self, payer: Payer, now: float) -> float:
        """Return the recent units of a payer."""
        recent = self._recent.get(payer)
        return recent.now(now) if recent is not None else 0.0

    def of_pool(self, pool: bytes, now: float) -> float:
        """Return the recent units of a pool."""
        found = self._pools.get(pool)
        return found.recent.now(now) if found is not None else 0.0

    def add(self, payer: Payer, units: int, now: float) -> None:
        """Charge units to a payer."""
        recent = self._recent.get(payer)
        if recent is None:
            recent = self._recent[payer] = Recent()
            self._pools.setdefault(payer.pool, _Pool()).payers += 1
            self._to_look_at.append(payer)
        recent.add(units, now)
        self._pools[payer.pool].recent.add(units, now)
        self._all.add(units, now)
        self._forget(now)

    def is_heavy(self, payer: Payer, now: float) -> bool:
        """Say whether a payer has its pool's average at least, and the pool the average of all."""
        recent = self._recent.get(payer)
        if recent is None:
            return False
        pool = self._pools[payer.pool]
        units, pooled = recent.now(now), pool.recent.now(now)
        # The sums are of many roundings, and one payer alone must reach its own average.
        is_heavy_pool = pooled * _ROUNDED >= self._all.now(now) / len(self._pools)
        return is_heavy_pool and units * _ROUNDED >= pooled / pool.payers

    def _forget(self, now: float) -> None:
        """Forget payers that did nothing lately, so that idle ones lower no average."""
        for _ in range(_LOOKS):
            if not self._to_look_at:
                return
            payer = self._to_look_at.popleft()
            recent = self._recent[payer]
            if now < recent.at + HALF_LIFE_S or recent.now(now) >= FORGOTTEN_UNITS:
                self._to_look_at.append(payer)
                continue
            pool = self._pools[payer.pool]
            pool.payers -= 1
            pool.recent.add(-recent.now(now), now)
            self._all.add(-recent.now(now), now)
            del self._recent[payer]
            if not pool.payers:
                del self._pools[payer.pool]
