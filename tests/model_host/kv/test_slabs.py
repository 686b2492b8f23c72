"""Slab numbers and memory: contiguous where possible, counted by groups, zero when free."""

import random

import numpy as np
import pytest

from model_host.kv.slabs import FreeRuns, Slabs
from tests.model_host.kv.paged import GROUP_BYTES, SLAB_BYTES, NumpyMemory


def _slabs(slabs: int = 10, tail_slots: int = 2, budget_slabs: float = 9) -> Slabs:
    memory = NumpyMemory(slabs)
    return Slabs(memory, tail_slots=tail_slots, budget_bytes=int(budget_slabs * SLAB_BYTES))


# --- numbers --------------------------------------------------------------------------


def test_the_next_slab_of_a_chain_is_the_neighbour_of_the_last() -> None:
    free = FreeRuns(0, 100)
    number = free.allocate(None)
    for _ in range(40):
        assert free.allocate(number) == number + 1
        number += 1


def test_chains_begin_far_from_each_other() -> None:
    free = FreeRuns(0, 128)
    starts = sorted(free.allocate(None) for _ in range(7))
    assert min(b - a for a, b in zip([-1, *starts], [*starts, 128], strict=True)) >= 15


def test_a_neighbour_in_use_is_not_allocated_again() -> None:
    free = FreeRuns(0, 10)
    first = free.allocate(None)
    second = free.allocate(first)
    assert free.allocate(first) not in (first, second)
    free.release(second)
    assert free.allocate(first) == second


def test_free_numbers_are_those_of_a_naive_set() -> None:
    rng = random.Random(3)
    free, naive, used = FreeRuns(5, 60), set(range(5, 60)), []
    for _ in range(3000):
        if used and (rng.random() < 0.48 or not naive):
            number = used.pop(rng.randrange(len(used)))
            free.release(number)
            naive.add(number)
        else:
            after = rng.choice([None, *used])
            number = free.allocate(after)
            assert number in naive
            assert number == (after or -2) + 1 or (after or -2) + 1 not in naive
            naive.remove(number)
            used.append(number)
        assert len(free) == len(naive)
        assert [n for n in range(70) if n in free] == sorted(naive)
    assert len(free._longest) <= 4 * 60 + 64


# --- memory ---------------------------------------------------------------------------


def test_slots_are_allocated_from_the_first() -> None:
    slabs = _slabs(tail_slots=3)
    assert [slabs.allocate_slot() for _ in range(4)] == [0, 1, 2, None]
    slabs.release(1)
    slabs.release(0)
    assert slabs.allocate_slot() == 0
    assert slabs.allocate(None) >= 3
    slabs.check_integrity()


def test_memory_counts_by_groups_of_64_tokens() -> None:
    slabs = _slabs()
    slab = slabs.allocate(None)
    assert slabs.used_bytes == 0
    for tokens, groups in [(1, 1), (64, 1), (65, 2), (10, 2), (512, 8)]:
        slabs.reserve(slab, tokens)
        assert slabs.used_bytes == groups * GROUP_BYTES
    slabs.cut(slab, 129)
    assert slabs.used_bytes == 3 * GROUP_BYTES
    slabs.release(slab)
    assert slabs.used_bytes == 0
    slabs.check_integrity()


def test_freed_memory_is_zero() -> None:
    slabs = _slabs()
    memory = slabs.memory
    assert isinstance(memory, NumpyMemory)
    slab = slabs.allocate(None)
    slabs.reserve(slab, 200)
    memory.write(slab, 0, 200, np.full(200 * 8, 7, np.uint8))
    slabs.cut(slab, 70)
    assert not memory.cells[slab, 70:].any()
    assert memory.cells[slab, :70].all()
    slabs.release(slab)
    assert not memory.cells.any()


def test_a_slab_of_the_budget_is_kept_for_moves() -> None:
    slabs = _slabs(budget_slabs=2)
    source, target = slabs.allocate(None), slabs.allocate(None)
    slabs.reserve(source, 512)
    memory = slabs.memory
    assert isinstance(memory, NumpyMemory)
    memory.write(source, 0, 512, np.full(512 * 8, 7, np.uint8))
    assert slabs.free_groups == 0
    slabs.move(source, target, 512)
    assert memory.most_used_bytes == 2 * SLAB_BYTES
    assert slabs.used_bytes == SLAB_BYTES
    assert not memory.cells[source].any()
    assert memory.cells[target].all()
    slabs.check_integrity()


@pytest.mark.parametrize(
    "damage",
    [
        lambda slabs: slabs._groups.update({5: 3}),
        lambda slabs: slabs._slots.pop(),
        lambda slabs: slabs._free.allocate(None),
        lambda slabs: slabs._slots.append(9),
    ],
)
def test_damage_is_noticed(damage: object) -> None:
    slabs = _slabs()
    slabs.reserve(slabs.allocate(None), 100)
    slabs.check_integrity()
    damage(slabs)  # type: ignore[operator]
    with pytest.raises(AssertionError):
        slabs.check_integrity()
