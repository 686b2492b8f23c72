"""Contexts in memory: several per conversation, one budget, least recently used evicted first."""

import random
from collections.abc import Sequence
from contextlib import ExitStack

import pytest

from model_host.errors import CacheBudgetExceeded, CacheBusy
from model_host.kv.pool import CONTEXTS_MAX, CachePool, Context
from tests.model_host.kv.computed import SLAB_BYTES, compute, holds, small_cache

A, B, C = b"a", b"b", b"c"


def _pool(slabs: int) -> CachePool:
    return CachePool(small_cache, slabs * SLAB_BYTES)


def _use(pool: CachePool, conversation: bytes, ids: Sequence[int]) -> int:
    """Choose a context and compute `ids` in it; return the number of tokens reused."""
    with pool.hold(conversation) as hold:
        context = pool.choose(hold, ids)
        found = context.cache.tokens
        assert holds(context.cache, ids)
        compute(context.cache, ids)
        return found


def _ids(count: int, start: int = 0) -> list[int]:
    return list(range(start, start + count))


# --- which context --------------------------------------------------------------------


def test_the_next_turn_continues_where_the_last_one_ended() -> None:
    pool = _pool(9)
    assert _use(pool, A, _ids(10)) == 0
    assert _use(pool, A, _ids(25)) == 10
    assert len(pool) == 1


def test_one_token_is_always_left_to_compute() -> None:
    pool = _pool(9)
    _use(pool, A, _ids(10))
    assert _use(pool, A, _ids(10)) == 9


def test_two_branches_answered_in_turns_both_stay() -> None:
    pool = _pool(9)
    one, other = _ids(600), [*_ids(550), *_ids(50, 7000)]
    assert _use(pool, A, one) == 0
    assert _use(pool, A, other) == 550
    for more in (20, 40, 60):
        assert _use(pool, A, [*one, *_ids(more, 900)]) == 600 + more - 20
        assert _use(pool, A, [*other, *_ids(more, 900)]) == 600 + more - 20
    assert len(pool) == 2


def test_a_branch_with_nothing_in_common_begins_empty_beside_the_other() -> None:
    pool = _pool(9)
    _use(pool, A, _ids(10))
    assert _use(pool, A, _ids(10, 50)) == 0
    assert _use(pool, A, _ids(20)) == 10


def test_where_the_budget_is_too_small_for_both_the_other_branch_is_truncated() -> None:
    pool = _pool(1)
    one, other = _ids(200), [*_ids(100), *_ids(100, 7000)]
    _use(pool, A, one)
    assert _use(pool, A, other) == 100
    assert (len(pool), pool.evictions) == (1, 0)
    assert _use(pool, A, one) == 100


def test_nothing_of_another_conversation_is_used() -> None:
    pool = _pool(9)
    _use(pool, A, _ids(100))
    assert _use(pool, B, _ids(100)) == 0


def test_two_runs_in_one_conversation_have_a_context_each() -> None:
    pool = _pool(9)
    _use(pool, A, _ids(100))
    with pool.hold(A) as first, pool.hold(A) as second:
        mine, others = pool.choose(first, _ids(120)), pool.choose(second, _ids(130))
        assert mine is not others
        assert (mine.cache.tokens, others.cache.tokens) == (100, 100)
        compute(mine.cache, _ids(120))
        assert holds(others.cache, _ids(130))


def test_a_context_in_use_is_neither_truncated_nor_shared_for_lack_of_memory() -> None:
    pool = _pool(1)
    with pool.hold(A) as hold:
        compute(pool.choose(hold, _ids(100)).cache, _ids(100))
        with pool.hold(A) as other, pytest.raises(CacheBusy):
            pool.choose(other, [*_ids(50), 7, 8])
        assert hold.context is not None
        assert holds(hold.context.cache, _ids(100))
    assert len(pool) == 1


def test_a_step_that_failed_leaves_no_token_behind() -> None:
    pool = _pool(9)
    with pool.hold(A) as hold:
        context = pool.choose(hold, _ids(10))
        compute(context.cache, _ids(10))
        context.expect((77,))  # the step fails: the cache stays as it was
        context.expect((10,))
        compute(context.cache, _ids(11))
    assert _use(pool, A, _ids(20)) == 11


def test_the_closest_context_is_the_one_a_checkpoint_is_written_of() -> None:
    pool = _pool(9)
    one, other = _ids(100), [*_ids(50), *_ids(50, 7000)]
    _use(pool, A, one)
    _use(pool, A, other)
    for ids in (one, other):
        context, tokens = pool.closest(A, ids)
        assert context is not None
        assert tokens == 100
        assert holds(context.cache, ids)
    assert pool.closest(B, one) == (None, 0)


# --- budget ---------------------------------------------------------------------------


def test_the_least_recently_used_goes_first() -> None:
    pool = _pool(3)
    for key in (A, B, C):
        _use(pool, key, _ids(10))
    _use(pool, A, _ids(20))
    _use(pool, b"d", _ids(10))
    assert [key in pool for key in (A, B, C, b"d")] == [True, False, True, True]
    assert pool.evictions == 1
    assert pool.nbytes == 3 * SLAB_BYTES


def test_a_conversation_keeps_a_few_branches_at_most() -> None:
    pool = _pool(99)
    _use(pool, B, _ids(10))
    for number in range(CONTEXTS_MAX + 3):
        _use(pool, A, [number * 100, 1, 2, 3])
    assert len([c for c in pool._contexts if c.conversation == A]) == CONTEXTS_MAX
    assert B in pool
    newest = (CONTEXTS_MAX + 2) * 100
    assert _use(pool, A, [newest, 1, 2, 3, 4]) == 4
    assert _use(pool, A, [0, 1, 2, 3, 4]) == 0


def test_a_context_that_alone_exceeds_the_budget_is_refused() -> None:
    pool = _pool(2)
    _use(pool, B, _ids(10))
    with pytest.raises(CacheBudgetExceeded) as caught:
        _use(pool, A, _ids(1025))
    assert not caught.value.retryable
    assert B in pool  # not evicted, since the context can't fit anyway


def test_a_context_in_use_is_never_evicted() -> None:
    pool = _pool(2)
    with pool.hold(A) as hold:
        pool.choose(hold, _ids(600)).cache.reserve(600)
        with pytest.raises(CacheBusy) as caught:
            _use(pool, B, _ids(10))
        assert caught.value.retryable
    _use(pool, B, _ids(10))
    assert A not in pool


def test_a_growth_that_is_refused_evicts_nothing() -> None:
    pool = _pool(3)
    _use(pool, B, _ids(10))
    with pool.hold(A) as hold:
        pool.choose(hold, _ids(600)).cache.reserve(600)
        with pytest.raises(CacheBusy):
            _use(pool, C, _ids(1000))
    assert B in pool
    assert pool.evictions == 0


def test_a_held_conversation_is_not_dropped_and_a_dropped_one_starts_empty() -> None:
    pool = _pool(9)
    _use(pool, A, _ids(10))
    _use(pool, A, _ids(20, 50))
    with pool.hold(A), pytest.raises(CacheBusy):
        pool.drop(A)
    assert pool.drop(A) == 30
    assert pool.drop(b"never there") == 0
    assert _use(pool, A, _ids(10)) == 0
    assert len(pool) == 1


# --- against a naive twin -------------------------------------------------------------


@pytest.mark.parametrize("slabs", [2, 3, 8, 99])
def test_any_tokens_are_found_as_they_were_computed(slabs: int) -> None:
    """The twin keeps all contexts ever computed; the pool finds no longer and no other prefix."""
    rng = random.Random(slabs)
    pool, known = CachePool(small_cache, slabs * SLAB_BYTES), {A: [], B: []}
    with ExitStack() as running:
        in_use: list[tuple[Context, list[int]]] = []
        for _ in range(200):
            conversation = rng.choice((A, B))
            past = rng.choice(known[conversation] or [[]])
            ids = [*past[: rng.randrange(len(past) + 1)], *_ids(rng.randrange(1, 90), 1000)][:500]
            with ExitStack() as turn:
                hold = turn.enter_context(pool.hold(conversation))
                try:
                    context = pool.choose(hold, ids)
                    found = context.cache.tokens
                    compute(context.cache, ids)
                except CacheBusy:
                    assert len(in_use) == slabs
                    continue
                most = max((_common(ids[:-1], other) for other in known[conversation]), default=0)
                assert found <= most
                if slabs == 99 and len(known[conversation]) < CONTEXTS_MAX:
                    assert found == most
                known[conversation].append(ids)
                if len(in_use) < 2 and rng.random() < 0.1:
                    in_use.append((context, ids))
                    running.push(turn.pop_all())
            assert pool.nbytes <= slabs * SLAB_BYTES
            assert all(holds(each.cache, theirs) for each, theirs in in_use)
            assert all(each.cache.tokens == len(theirs) for each, theirs in in_use)
        assert len(in_use) == 2


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    count = 0
    while count < min(len(a), len(b)) and a[count] == b[count]:
        count += 1
    return count
