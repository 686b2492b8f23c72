"""Where a sequence's slabs lie: tails side by side, full slabs one after the other."""

from collections.abc import Callable

import numpy as np
import pytest

from model_host.kv.page_pool import PagePool
from model_host.kv.sequences import KVSequence, total_groups
from tests.model_host.kv.paged import GROUP_BYTES, SLAB_BYTES, NumpyMemory, extend

D = b"d" * 32
SLOTS = 4


def _pool(slabs: int = 64, tail_slots: int = SLOTS) -> tuple[PagePool, NumpyMemory]:
    memory = NumpyMemory(slabs)
    return PagePool(memory, tail_slots=tail_slots, budget_bytes=slabs * SLAB_BYTES), memory


def _begin(pool: PagePool, memory: NumpyMemory, tokens: int, first: int = 0) -> KVSequence:
    """Open a sequence of its own conversation, and compute `tokens` tokens."""
    ids = range(first, first + tokens)
    sequence = pool.open([*ids, 0], D, b"%d" % first)
    extend(pool, memory, sequence, ids)
    pool.check_integrity()
    return sequence


def test_tails_of_running_sequences_lie_side_by_side() -> None:
    pool, memory = _pool()
    running = [_begin(pool, memory, 40 + 700 * n, 10_000 * n) for n in range(SLOTS)]
    assert [sequence.slabs[-1] for sequence in running] == [0, 1, 2, 3]
    pool.close(running[1])
    assert _begin(pool, memory, 5, 50_000).slabs == [1]


def test_full_slabs_lie_one_after_the_other_though_written_token_by_token() -> None:
    pool, memory = _pool()
    one, other = _begin(pool, memory, 500), _begin(pool, memory, 500, 10_000)
    for at in range(500, 1600):
        for sequence, first in ((one, 0), (other, 10_000)):
            extend(pool, memory, sequence, [first + at])
    for sequence in (one, other):
        start = sequence.slabs[0]
        assert sequence.slabs[:3] == [start, start + 1, start + 2]
        assert sequence.slabs[3] < SLOTS
        pool.close(sequence)


def test_a_prompt_reserved_whole_is_written_where_it_stays() -> None:
    pool, memory = _pool()
    sequence = pool.open(range(2001), D, b"a")
    pool.grow(sequence, 2000)
    start = sequence.slabs[0]
    assert sequence.slabs == [start, start + 1, start + 2, 0]
    assert sequence.reserved == 3 * 512 + 512
    for at in range(0, 2000, 400):
        extend(pool, memory, sequence, range(at, at + 400))
    assert memory.copied_tokens == 0
    pool.close(sequence)
    pool.check_integrity()


def test_a_last_slab_that_is_filled_at_once_is_not_moved() -> None:
    pool, memory = _pool()
    sequence = pool.open(range(1025), D, b"a")
    with pool.restoring(sequence, range(1024)) as staging:
        assert min(sequence.slabs) >= SLOTS
        for stop in range(64, 1025, 64):
            staging.write(stop, np.zeros(GROUP_BYTES, np.uint8))
    assert memory.copied_tokens == 0
    extend(pool, memory, sequence, [1024])
    assert sequence.slabs[-1] == 0
    pool.close(sequence)
    pool.check_integrity()


def test_a_tail_moves_once_per_slab() -> None:
    pool, memory = _pool()
    sequence = _begin(pool, memory, 1)
    for at in range(1, 1100):
        extend(pool, memory, sequence, [at])
    assert memory.copied_tokens == 2 * 512


def test_a_tail_grows_by_groups_of_64_tokens() -> None:
    pool, memory = _pool()
    sequence = _begin(pool, memory, 1)
    for at in range(1, 600):
        extend(pool, memory, sequence, [at])
        assert pool.used_bytes == GROUP_BYTES * (-(-(at + 1) // 64))


def test_more_sequences_than_slots_run_with_tails_in_ordinary_slabs() -> None:
    pool, memory = _pool(tail_slots=2)
    running = [_begin(pool, memory, 300, 10_000 * n) for n in range(4)]
    assert [sequence.slabs[-1] < 2 for sequence in running] == [True, True, False, False]
    pool.close(running[0])
    extend(pool, memory, running[3], range(30_300, 30_600))
    assert running[3].slabs[-1] == 0
    pool.check_integrity()


def test_an_ended_tail_lies_next_to_its_chain_and_goes_on_from_there() -> None:
    pool, memory = _pool()
    sequence = _begin(pool, memory, 700)
    start = sequence.slabs[0]
    pool.close(sequence)
    (_, tail) = pool._users.conversations[b"0"].nodes
    assert tail.slab == start + 1
    again = pool.open(range(800), D, b"0")
    assert again.slabs == [start, 0]
    extend(pool, memory, again, range(700, 1030))
    assert again.slabs == [start, start + 1, 0]
    assert pool.counters.copies == 0


def test_what_lacks_is_what_is_reserved() -> None:
    pool, memory = _pool()
    for tokens in (0, 1, 64, 500, 511, 512, 513, 1000):
        sequence = _begin(pool, memory, tokens)
        for more in (1, 12, 13, 64, 512, 513, 2000):
            groups, slabs = sequence.lacking(tokens + more)
            used, count = pool.used_bytes, len(sequence.slabs)
            pool.grow(sequence, more)
            assert pool.used_bytes - used == groups * GROUP_BYTES
            assert len(sequence.slabs) - count == max(0, slabs)
            assert sequence.reserved >= tokens + more
            assert pool.used_bytes == GROUP_BYTES * total_groups(sequence.reserved)
            sequence.trim()
            assert pool.used_bytes == GROUP_BYTES * total_groups(tokens)
        pool.drop(sequence)


@pytest.mark.parametrize(
    "damage",
    [
        lambda sequence: sequence.slabs.reverse(),
        lambda sequence: sequence.slabs.pop(),
        lambda sequence: sequence.slabs.insert(0, 1),
        lambda sequence: sequence.free_destination(),
        lambda sequence: setattr(sequence, "node", None),
        lambda sequence: sequence.node.users.clear(),
    ],
)
def test_damage_is_noticed(damage: Callable[[KVSequence], object]) -> None:
    pool, memory = _pool()
    damage(_begin(pool, memory, 700))
    with pytest.raises(AssertionError):
        pool.check_integrity()
