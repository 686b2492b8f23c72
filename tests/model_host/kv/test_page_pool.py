"""The pool of pages: prefixes shared and copied, memory reserved and freed, nothing half done."""

from collections.abc import Callable

import numpy as np
import pytest

from model_host.errors import CacheBudgetExceeded, CacheBusy
from model_host.kv.page_pool import PagePool
from tests.model_host.kv.paged import (
    GROUP_BYTES,
    SLAB_BYTES,
    NumpyMemory,
    compute,
    contents,
    extend,
    keys_and_values,
)
from tests.model_host.kv.pooled import A, B, C, D, E, Pooled

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


@pytest.mark.parametrize("tokens", [512, 700, 1024])
def test_a_tail_that_becomes_full_beside_an_equal_slab_is_freed(tokens: int) -> None:
    given = Pooled()
    one = given.begin(range(2))
    other = given.begin([5, 5])
    given.pool.rollback(other, 0)
    for at in range(1, tokens):
        extend(given.pool, given.memory, one, [at])
    for at in range(tokens):
        extend(given.pool, given.memory, other, [at])
        given.pool.check_integrity()
    assert given.pool.counters.merges == tokens // 512
    assert other.slabs[: tokens // 512] == one.slabs[: tokens // 512]
    extend(given.pool, given.memory, other, [3] * 9)
    assert np.array_equal(
        contents(given.memory, other), keys_and_values([*range(tokens), *[3] * 9])
    )
    given.pool.check_integrity()


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
    assert (sequence.shared_tokens, sequence.own_tokens) == (0, 600)
    other = given.begin([*range(600), 7], B)
    assert (other.cached_tokens, other.shared_tokens, other.own_tokens) == (600, 600, 0)
    given.pool.close(other)
    again = given.begin([*range(600), 7, 8], B)
    assert (again.cached_tokens, again.own_tokens) == (600, 600)


def test_the_log_states_what_the_conversation_would_have_found_alone() -> None:
    given = Pooled()
    given.answer(range(300), B)
    given.answer(range(700))
    sequence = given.begin(range(800), B)
    assert (sequence.cached_tokens, sequence.own_tokens) == (700, 300)


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


# --- counters and its own check -------------------------------------------------------


def test_events_are_counted() -> None:
    given = Pooled(slabs=3)
    given.answer(range(700))
    given.answer([*range(600), 7], B)
    given.answer(range(5000, 6200), C)
    counters = given.pool.counters
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
