"""Rolled back, dropped and restored sequences: nothing half done, nothing left behind."""

from collections.abc import Sequence

import numpy as np
import pytest

from model_host.errors import CacheBudgetExceeded
from model_host.kv.page_pool import Staging
from tests.model_host.kv.paged import GROUP_BYTES, compute, contents, extend, keys_and_values
from tests.model_host.kv.pooled import A, B, D, Pooled

# --- rollback -------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [0, 1, 500, 511, 512, 513, 1000, 1023, 1024, 1025, 1099, 1100])
def test_a_rollback_keeps_the_first_tokens(keep: int) -> None:
    given = Pooled()
    sequence = given.begin([*range(1100), 0])
    assert given.pool.rollback(sequence, keep) == keep == sequence.tokens
    given.pool.check_integrity()
    assert np.array_equal(contents(given.memory, sequence), keys_and_values(range(keep)))
    extend(given.pool, given.memory, sequence, [7] * 600)
    assert np.array_equal(
        contents(given.memory, sequence), keys_and_values([*range(keep), *[7] * 600])
    )
    given.pool.close(sequence)
    given.pool.check_integrity()


def test_rejected_tokens_are_found_by_nobody() -> None:
    given = Pooled()
    sequence = given.begin([*range(100), 0])
    extend(given.pool, given.memory, sequence, [1, 2, 3])
    given.pool.rollback(sequence, 101)
    assert given.begin([*range(100), 1, 2, 3, 4]).cached_tokens == 101


def test_tokens_that_were_computed_and_not_accepted_leave_nothing() -> None:
    given = Pooled()
    sequence = given.begin([*range(100), 0])
    given.pool.grow(sequence, 500)
    compute(given.memory, sequence, [9] * 500)
    given.pool.close(sequence)
    given.pool.check_integrity()
    assert given.pool.used_bytes == 2 * GROUP_BYTES
    assert given.memory.used_bytes == 2 * GROUP_BYTES
    assert np.count_nonzero(given.memory.cells) == 100


def test_a_rollback_without_memory_for_a_copy_keeps_whole_slabs() -> None:
    given = Pooled(slabs=2)
    sequence = given.begin([*range(1024), 0])
    other = given.pool.open([*range(1024), 0], D, B)
    assert given.pool.rollback(sequence, 600) == sequence.tokens == 512
    assert given.pool.rollback(sequence, 100) == sequence.tokens == 0
    given.pool.close(other)
    given.pool.close(sequence)
    given.pool.check_integrity()


# --- drop and restore -----------------------------------------------------------------


def test_a_dropped_sequence_leaves_what_others_use() -> None:
    given = Pooled()
    given.answer(range(700), B)
    sequence = given.begin([*range(1700), 0])
    given.pool.drop(sequence)
    given.pool.check_integrity()
    assert given.pool.used_bytes == (8 + 3) * GROUP_BYTES
    assert given.answer(range(1700)) == 700


def test_a_dropped_sequence_leaves_the_end_of_another_conversations_context() -> None:
    given = Pooled()
    given.answer(range(512), B)
    given.pool.drop(given.begin([*range(512), 0]))
    assert given.begin([*range(512), 0], B).own_tokens == 512


def test_a_dropped_sequence_frees_what_it_had_cached_before() -> None:
    given = Pooled()
    given.answer(range(700))
    given.pool.drop(given.begin(range(800)))
    assert given.pool.used_bytes == 0
    given.pool.check_integrity()


def _write(staging: Staging, ids: Sequence[int], stop: int) -> None:
    payload = keys_and_values(ids)
    while staging.tokens < stop:
        start = staging.tokens
        end = min(start // 64 * 64 + 64, stop)
        staging.write(end, payload[start:end].view(np.uint8))


@pytest.mark.parametrize("held", [0, 1, 64, 100, 512, 600])
def test_restored_positions_become_valid_together(held: int) -> None:
    given = Pooled()
    given.answer(range(held))
    sequence = given.pool.open(range(1200), D, A)
    with given.pool.restoring(sequence, range(1100)) as staging:
        assert staging.tokens == held // 64 * 64
        _write(staging, range(1100), 1050)
        assert sequence.tokens == held // 64 * 64
        assert given.pool.open(range(1200), D, B).tokens == held // 64 * 64
        _write(staging, range(1100), 1100)
    assert sequence.tokens == 1100
    assert np.array_equal(contents(given.memory, sequence), keys_and_values(range(1100)))
    given.pool.check_integrity()
    given.pool.close(sequence)
    assert given.answer(range(1100)) == 1100


@pytest.mark.parametrize("written", [0, 64, 640, 1050])
def test_a_restore_that_fails_leaves_nothing_behind(written: int) -> None:
    given = Pooled()
    given.answer(range(100))
    used = given.pool.used_bytes
    sequence = given.pool.open(range(1200), D, A)
    with (
        pytest.raises(OSError, match="disk"),
        given.pool.restoring(sequence, range(1100)) as staging,
    ):
        _write(staging, range(1100), max(staging.tokens, written))
        raise OSError("disk")
    given.pool.check_integrity()
    assert sequence.tokens == 64
    given.pool.close(sequence)
    assert given.pool.used_bytes == used - GROUP_BYTES
    assert np.count_nonzero(given.memory.cells) == 64
    assert given.answer(range(1100)) == 64


def test_a_restore_that_leaves_positions_out_is_none() -> None:
    given = Pooled()
    sequence = given.pool.open(range(1200), D, A)
    with pytest.raises(AssertionError), given.pool.restoring(sequence, range(600)) as staging:
        _write(staging, range(600), 576)
    assert sequence.tokens == 0
    assert given.pool.used_bytes == 0


def test_a_restore_without_memory_is_refused_before_it_begins() -> None:
    given = Pooled(slabs=2)
    sequence = given.pool.open(range(1200), D, A)
    with pytest.raises(CacheBudgetExceeded), given.pool.restoring(sequence, range(1100)):
        pytest.fail("nothing is restored")
    assert given.pool.used_bytes == 0
