"""The pool of pages: prefixes shared and copied, memory reserved and freed, nothing half done."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from model_host.errors import CacheBudgetExceeded, CacheBusy
from model_host.kv.page_pool import PagePool
from model_host.kv.sequences import KVSequence
from tests.model_host.kv.paged import (
    GROUP_BYTES,
    SLAB_BYTES,
    NumpyMemory,
    compute,
    contents,
    extend,
    keys_and_values,
)

D, E = b"d" * 32, b"e" * 32
A, B, C = b"a", b"b", b"c"


class Pooled:
    """A pool with room for `slabs` slabs of tokens."""

    def __init__(self, slabs: float = 40, tail_slots: int = 4) -> None:
        self.memory = NumpyMemory(100)
        budget = int((slabs + 1) * SLAB_BYTES)
        self.pool = PagePool(self.memory, tail_slots=tail_slots, budget_bytes=budget)

    def begin(self, ids: Sequence[int], key: bytes = A, domain: bytes = D) -> KVSequence:
        """Open a context, and compute all of it but the last token."""
        sequence = self.pool.open(ids, domain, key)
        assert np.array_equal(
            contents(self.memory, sequence), keys_and_values(ids)[: sequence.tokens]
        )
        if more := ids[sequence.tokens : -1]:
            extend(self.pool, self.memory, sequence, more)
        self.pool.check_integrity()
        return sequence

    def answer(self, ids: Sequence[int], key: bytes = A, domain: bytes = D) -> int:
        """Compute a whole context and close it; return the number of tokens found."""
        sequence = self.begin([*ids, 0], key, domain)
        self.pool.close(sequence)
        self.pool.check_integrity()
        return sequence.cached_tokens


# --- which prefix ---------------------------------------------------------------------


def test_the_next_turn_continues_where_the_last_one_ended() -> None:
    given = Pooled()
    assert given.answer(range(10)) == 0
    assert given.answer(range(700)) == 10
    assert given.answer(range(1200)) == 700
    assert given.pool.counters.copies == 0
    assert given.pool.used_bytes == 19 * GROUP_BYTES


@pytest.mark.parametrize("tokens", [1, 2, 16, 64, 511, 512, 513, 1024, 1025])
def test_one_token_is_always_left_to_compute(tokens: int) -> None:
    given = Pooled()
    given.answer(range(tokens))
    sequence = given.begin(range(tokens))
    assert sequence.cached_tokens == tokens - 1
    given.pool.close(sequence)


@pytest.mark.parametrize("common", [1, 100, 511, 512, 513, 700, 1024, 1100])
def test_two_branches_answered_in_turns_both_stay(common: int) -> None:
    given = Pooled()
    one, other = list(range(1200)), [*range(common), *range(7000, 7100)]
    assert given.answer(one) == 0
    assert given.answer(other) == common
    for more in (1, 2, 3):
        assert given.answer([*one, *range(900, 900 + more)]) == len(one) + more - 1
        assert given.answer([*other, *range(900, 900 + more)]) == len(other) + more - 1


def test_full_slabs_are_shared_by_reference_and_partial_ones_copied() -> None:
    given = Pooled()
    one = given.begin([*range(1100), 0])
    used = given.pool.used_bytes
    other = given.begin([*range(1060), 0])
    assert other.slabs[:2] == one.slabs[:2]
    assert other.slabs[2] != one.slabs[2]
    assert given.pool.used_bytes - used == GROUP_BYTES  # 36 tokens
    extend(given.pool, given.memory, other, [7] * 40)
    assert np.array_equal(contents(given.memory, one), keys_and_values(range(1100)))
    given.pool.check_integrity()


def test_sequences_that_compute_the_same_slab_at_once_keep_one() -> None:
    given = Pooled()
    running = [given.pool.open(range(700), D, key) for key in (A, B, C)]
    for sequence in running:
        given.pool.grow(sequence, 699)
    for sequence in running:
        compute(given.memory, sequence, range(699))
        given.pool.advance(sequence, range(699))
        given.pool.check_integrity()
    assert len({sequence.slabs[0] for sequence in running}) == 1
    assert given.pool.counters.merges == 2
    assert given.pool.used_bytes == (8 + 3 * 3) * GROUP_BYTES


def test_an_answer_that_repeats_another_is_not_kept_twice() -> None:
    given = Pooled()
    given.answer(range(300))
    sequence = given.begin(range(299))
    used = given.pool.used_bytes
    given.pool.close(sequence)
    assert given.pool.used_bytes == used - 5 * GROUP_BYTES
    assert given.answer(range(300)) == 300


def test_a_tail_that_others_see_is_continued_by_them_while_it_runs() -> None:
    given = Pooled()
    one = given.begin([*range(300), 0])
    other = given.begin([*range(300), 1, 0])
    assert other.cached_tokens == 300
    extend(given.pool, given.memory, one, [0])
    third = given.begin([*range(300), 0, 5])
    assert third.cached_tokens == 301


# --- sharing --------------------------------------------------------------------------


def test_hits_in_pages_of_others_are_not_stated_in_the_log() -> None:
    given = Pooled()
    given.answer(range(600))
    sequence = given.begin([*range(600), 7])
    given.pool.close(sequence)
    assert (sequence.shared_tokens, sequence.logged_tokens) == (0, 600)
    other = given.begin([*range(600), 7], B)
    assert (other.cached_tokens, other.shared_tokens, other.logged_tokens) == (600, 600, 0)
    given.pool.close(other)
    again = given.begin([*range(600), 7, 8], B)
    assert (again.cached_tokens, again.logged_tokens) == (600, 600)


def test_the_log_states_what_the_conversation_would_have_found_alone() -> None:
    given = Pooled()
    given.answer(range(300), B)
    given.answer(range(700))
    sequence = given.begin(range(800), B)
    assert (sequence.cached_tokens, sequence.logged_tokens) == (700, 300)


def test_nothing_is_found_in_another_domain() -> None:
    given = Pooled()
    given.answer(range(600))
    assert given.answer(range(600), B, E) == 0
    assert given.answer(range(600), C, E) == 600


def test_a_conversation_whose_domain_changes_keeps_its_slabs_and_leaves_the_others() -> None:
    given = Pooled()
    given.answer(range(600))
    given.answer([*range(512), *range(9)], B)
    used = given.pool.used_bytes
    assert given.answer([*range(512), *range(9)], B, E) == 521
    assert given.pool.used_bytes == used
    assert given.answer(range(600), C, E) == 512
    given = Pooled()
    given.answer(range(600))
    assert given.answer(range(600), A, E) == 600
    assert given.answer(range(600), B) == 0


def test_a_running_conversation_can_change_its_domain() -> None:
    given = Pooled()
    running = given.begin(range(600))
    other = given.begin([*range(400), 7], A, E)
    assert other.cached_tokens == 400
    extend(given.pool, given.memory, running, range(599, 1100))
    given.pool.check_integrity()
    given.pool.close(running)
    given.pool.close(other)
    assert given.answer(range(1100), A, E) == 1100


# --- memory ---------------------------------------------------------------------------


def test_the_least_recently_used_context_goes_first() -> None:
    given = Pooled(slabs=3)
    for first in (0, 1000, 2000):
        given.answer(range(first, first + 500))
    given.answer(range(510))
    given.answer(range(3000, 3500))
    found = [given.answer(range(n, n + 500), key) for n, key in ((1000, B), (0, C))]
    assert found == [0, 500]


def test_a_context_is_evicted_from_its_end_and_no_further_than_needed() -> None:
    given = Pooled(slabs=4)
    given.answer(range(1500))
    given.answer(range(5000, 5600), B)
    assert given.pool.counters.evictions == 1
    sequence = given.begin(range(1500))
    assert sequence.cached_tokens == 1024


def test_a_context_that_does_not_fit_alone_is_refused_and_evicts_nothing() -> None:
    given = Pooled(slabs=3)
    given.answer(range(5000, 5500), B)
    sequence = given.pool.open(range(2000), D, A)
    with pytest.raises(CacheBudgetExceeded) as caught:
        given.pool.grow(sequence, 3 * 512 + 1)
    assert not caught.value.retryable
    given.pool.grow(sequence, 2 * 512)
    assert given.pool.counters.evictions == 0


def test_memory_in_use_by_others_makes_a_sequence_wait_and_evicts_nothing() -> None:
    given = Pooled(slabs=3)
    given.answer(range(5000, 5500), C)
    running = given.begin(range(600))
    other = given.pool.open(range(9000, 9900), D, B)
    with pytest.raises(CacheBusy) as caught:
        given.pool.grow(other, 900)
    assert caught.value.retryable
    assert given.pool.counters.evictions == 0
    given.pool.close(running)
    given.pool.grow(other, 900)
    assert given.pool.counters.evictions == 2
    given.pool.check_integrity()


def test_slab_numbers_are_a_limit_too() -> None:
    memory = NumpyMemory(6)
    pool = PagePool(memory, tail_slots=2, budget_bytes=50 * SLAB_BYTES)
    sequence = pool.open(range(9), D, A)
    with pytest.raises(CacheBudgetExceeded):
        pool.grow(sequence, 4 * 512 + 1)
    pool.grow(sequence, 4 * 512)
    with pytest.raises(CacheBusy):
        pool.grow(pool.open(range(9), D, B), 1)
    pool.check_integrity()


def test_without_memory_for_a_copy_the_conversations_other_branch_is_cut() -> None:
    given = Pooled(slabs=1)
    given.answer(range(500))
    assert given.answer([*range(400), 7]) == 400
    assert given.answer(range(500)) == 400


def test_without_memory_for_a_copy_only_full_slabs_are_found() -> None:
    given = Pooled(slabs=2)
    running = given.begin([*range(1000), 0])
    other = given.pool.open([*range(1000), 0], D, B)
    assert (other.cached_tokens, other.shared_tokens) == (512, 512)
    given.pool.close(running)
    given.pool.close(other)


def test_the_budget_holds_during_moves_and_copies() -> None:
    given = Pooled(slabs=3)
    sequence = given.begin(range(400))
    for at in range(399, 1536):
        extend(given.pool, given.memory, sequence, [at])
    given.pool.close(sequence)
    given.answer(range(1500))
    assert given.memory.most_used_bytes <= 4 * SLAB_BYTES


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


def test_a_dropped_sequence_frees_what_it_had_cached_before() -> None:
    given = Pooled()
    given.answer(range(700))
    given.pool.drop(given.begin(range(800)))
    assert given.pool.used_bytes == 0
    given.pool.check_integrity()


def _write(given: Pooled, staging: object, ids: Sequence[int], stop: int) -> None:
    payload = keys_and_values(ids)
    while staging.tokens < stop:  # type: ignore[attr-defined]
        start = staging.tokens  # type: ignore[attr-defined]
        end = min(start // 64 * 64 + 64, stop)
        staging.write(end, payload[start:end].view(np.uint8))  # type: ignore[attr-defined]


@pytest.mark.parametrize("held", [0, 1, 64, 100, 512, 600])
def test_restored_positions_become_valid_together(held: int) -> None:
    given = Pooled()
    given.answer(range(held))
    sequence = given.pool.open(range(1200), D, A)
    with given.pool.restoring(sequence, range(1100)) as staging:
        assert staging.tokens == held // 64 * 64
        _write(given, staging, range(1100), 1050)
        assert sequence.tokens == held // 64 * 64
        assert given.pool.open(range(1200), D, B).tokens == held // 64 * 64
        _write(given, staging, range(1100), 1100)
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
        _write(given, staging, range(1100), max(staging.tokens, written))
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
        _write(given, staging, range(600), 576)
    assert sequence.tokens == 0
    assert given.pool.used_bytes == 0


def test_a_restore_without_memory_is_refused_before_it_begins() -> None:
    given = Pooled(slabs=2)
    sequence = given.pool.open(range(1200), D, A)
    with pytest.raises(CacheBudgetExceeded), given.pool.restoring(sequence, range(1100)):
        pytest.fail("nothing is restored")
    assert given.pool.used_bytes == 0


# --- counters and its own check -------------------------------------------------------


def test_events_are_counted() -> None:
    given = Pooled(slabs=3)
    given.answer(range(700))
    given.answer([*range(600), 7], B)
    given.answer(range(5000, 6200), C)
    counters = given.pool.counters
    assert (counters.opened, counters.hits) == (3, 1)
    assert (counters.cached_tokens, counters.shared_tokens) == (600, 600)
    assert (counters.copies, counters.merges) == (1, 0)
    assert counters.evictions == 3


@pytest.mark.parametrize(
    "damage",
    [
        lambda pool: pool._holds.hold(next(iter(pool._index))),
        lambda pool: pool._slabs.allocate(None),
        lambda pool: pool._running.clear(),
        lambda pool: pool._slabs.reserve([n for n in pool._index if not n.holds][-1].slab, 512),
        lambda pool: setattr([*pool._index][-1], "slab", next(iter(pool._index)).slab),
    ],
)
def test_damage_is_noticed(damage: Callable[[PagePool], object]) -> None:
    given = Pooled()
    given.answer(range(700))
    given.begin(range(9000, 9600), B)
    damage(given.pool)
    with pytest.raises(AssertionError):
        given.pool.check_integrity()
