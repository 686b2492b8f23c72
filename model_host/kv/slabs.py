"""Slab numbers and the memory behind them, within one budget (spec/08-checkpoint §5). Pure.

    0 … tail_slots - 1    slots: the last, partial slabs of running sequences, side by side
    tail_slots … slabs    ordinary slabs

Memory counts by groups of 64 tokens, so a slab with 10 tokens uses an eighth of a whole
one. Numbers cost nothing by themselves; an engine may have more slabs than its budget fills.
"""

import heapq

from model_host.kv.memory import SLAB_TOKENS, SlabMemory
from model_host.kv.namespace import GROUP_TOKENS

SLAB_GROUPS = SLAB_TOKENS // GROUP_TOKENS


def groups_for(tokens: int) -> int:
    """Return the number of 64-token groups that hold the first `tokens` positions of a slab."""
    return -(-tokens // GROUP_TOKENS)


class FreeRuns:
    """Free numbers, kept as runs of neighbours, so that chains of slabs can grow contiguously."""

    def __init__(self, start: int, stop: int) -> None:
        """Begin with all numbers from `start` to `stop` - 1 free."""
        self._stops: dict[int, int] = {}  # start of a run -> its stop
        self._starts: dict[int, int] = {}  # stop of a run -> its start
        self._longest: list[tuple[int, int]] = []  # (-length, start); may hold former runs
        self._count = 0
        if start < stop:
            self._count = stop - start
            self._add(start, stop)

    def __len__(self) -> int:
        return self._count

    def __contains__(self, number: int) -> bool:
        return any(start <= number < stop for start, stop in self._stops.items())

    def allocate(self, after: int | None) -> int:
        """Return a free number: the one next to `after`, else the middle of the longest run.

        Chains that begin in the middle of runs have the most numbers left to grow into.
        """
        assert self._count, "the caller makes sure that a number is free"
        number = -1 if after is None else after + 1
        start = number if number in self._stops else self._start_of_longest()
        stop = self._stops[start]
        if start != number:
            number = (start + stop) // 2
        self._remove(start, stop)
        self._add(start, number)
        self._add(number + 1, stop)
        self._count -= 1
        return number

    def release(self, number: int) -> None:
        """Make a number free again, in one run with its free neighbours."""
        start = self._starts.get(number, number)
        stop = self._stops.get(number + 1, number + 1)
        self._remove(start, number)
        self._remove(number + 1, stop)
        self._add(start, stop)
        self._count += 1

    def _add(self, start: int, stop: int) -> None:
        if start == stop:
            return
        self._stops[start], self._starts[stop] = stop, start
        heapq.heappush(self._longest, (start - stop, start))
        if len(self._longest) > 4 * len(self._stops) + 64:
            self._longest = [(a - b, a) for a, b in self._stops.items()]
            heapq.heapify(self._longest)

    def _remove(self, start: int, stop: int) -> None:
        if start != stop:
            del self._stops[start], self._starts[stop]

    def _start_of_longest(self) -> int:
        while True:
            length, start = self._longest[0]
            if self._stops.get(start) == start - length:
                return start
            heapq.heappop(self._longest)


class Slabs:
    """The slabs of one memory: which are free, and how much of each is used."""

    def __init__(self, memory: SlabMemory, *, tail_slots: int, budget_bytes: int) -> None:
        """Use at most `budget_bytes`; one slab of them is kept for the copy that a move makes."""
        assert 0 <= tail_slots <= memory.slabs, "slots are slabs"
        self.memory = memory
        self.ordinary = memory.slabs - tail_slots
        """Number of ordinary slabs, free or not."""
        self._group_bytes = GROUP_TOKENS * memory.bytes_per_token
        self.capacity_groups = max(0, budget_bytes // self._group_bytes - SLAB_GROUPS)
        self._tail_slots = tail_slots
        self._slots = list(range(tail_slots))  # free ones, a heap
        self._free = FreeRuns(tail_slots, memory.slabs)
        self._groups: dict[int, int] = {}  # of each slab in use
        self._used_groups = 0

    @property
    def used_bytes(self) -> int:
        """Return the memory reserved in all slabs."""
        return self._used_groups * self._group_bytes

    @property
    def free_groups(self) -> int:
        """Return the number of groups left in the budget."""
        return self.capacity_groups - self._used_groups

    @property
    def free_slabs(self) -> int:
        """Return the number of ordinary slabs that are free."""
        return len(self._free)

    def in_use(self) -> set[int]:
        """Return the numbers of all slabs and slots in use."""
        return set(self._groups)

    def is_slot(self, slab: int) -> bool:
        """Say whether a slab is one of the slots for tails."""
        return slab < self._tail_slots

    def groups(self, slab: int) -> int:
        """Return the number of groups reserved in a slab."""
        return self._groups[slab]

    def allocate(self, after: int | None) -> int:
        """Return a free ordinary slab, the one next to the slab `after` if possible."""
        slab = self._free.allocate(after)
        self._groups[slab] = 0
        return slab

    def allocate_slot(self) -> int | None:
        """Return the first free slot, or None: low numbers keep the tails side by side."""
        if not self._slots:
            return None
        slot = heapq.heappop(self._slots)
        self._groups[slot] = 0
        return slot

    def reserve(self, slab: int, tokens: int) -> None:
        """Count the first `tokens` positions of a slab as used, if fewer are so far."""
        more = groups_for(tokens) - self._groups[slab]
        if more > 0:
            self._groups[slab] += more
            self._used_groups += more

    def cut(self, slab: int, tokens: int) -> None:
        """Zero the reserved positions of a slab from `tokens`, and count them as free."""
        if tokens >= self._groups[slab] * GROUP_TOKENS:
            return  # nothing beyond the reservation was written
        self.memory.clear(slab, tokens)
        fewer = self._groups[slab] - groups_for(tokens)
        self._groups[slab] -= fewer
        self._used_groups -= fewer

    def move(self, source: int, target: int, tokens: int) -> None:
        """Copy the first `tokens` positions to an empty slab, which gets the reservation too.

        The source stays allocated, and is empty. Both are full during the copy: this is
        the slab that the budget keeps.
        """
        self.reserve(target, self._groups[source] * GROUP_TOKENS)
        if tokens:
            self.memory.copy(source, target, tokens)
        self.cut(source, 0)

    def release(self, slab: int) -> None:
        """Zero a slab and make it free."""
        self.cut(slab, 0)
        del self._groups[slab]
        if self.is_slot(slab):
            heapq.heappush(self._slots, slab)
        else:
            self._free.release(slab)

    def check_integrity(self) -> None:
        """Check that each slab is free or in use, and that the sums hold. Raises AssertionError."""
        used = sum(self._groups.values())
        assert used == self._used_groups, f"{self._used_groups} groups counted, {used} in use"
        assert used <= self.capacity_groups, f"{used} groups exceed {self.capacity_groups}"
        in_slots = sum(map(self.is_slot, self._groups))
        slots = self._tail_slots - in_slots
        assert len(self._slots) == slots, f"{len(self._slots)} free slots, not {slots}"
        free = self.ordinary - len(self._groups) + in_slots
        assert len(self._free) == free, f"{len(self._free)} free slabs, not {free}"
        for slab, groups in self._groups.items():
            is_free = slab in self._free or slab in self._slots
            assert not is_free, f"slab {slab} is in use and free"
            assert 0 <= groups <= SLAB_GROUPS, f"slab {slab} has {groups} groups"
