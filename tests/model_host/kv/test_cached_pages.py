"""Cached pages by conversation: evicted, pinned, listed and read, each for its own pages."""

import random

import pytest

from model_host.errors import CacheBudgetExceeded, CacheBusy
from model_host.kv import cached_pages
from tests.model_host.kv.paged import extend
from tests.model_host.kv.pooled import A, B, C, CachedSlab, D, E, Pooled, slabs_of

# --- eviction -------------------------------------------------------------------------


def test_a_running_conversation_is_not_evicted_and_an_evicted_one_starts_empty() -> None:
    given = Pooled()
    given.answer(range(700))
    sequence = given.pool.open(range(5), D, A)
    with pytest.raises(CacheBusy) as caught:
        given.pool.cached.evict(A)
    assert caught.value.retryable
    given.pool.close(sequence)
    assert given.pool.cached.evict(A) == 700
    assert given.pool.cached.evict(A) == given.pool.cached.evict(b"never there") == 0
    assert given.pool.used_bytes == 0
    assert given.answer(range(700)) == 0


def test_branches_of_a_conversation_are_evicted_together_and_their_common_part_counts_once() -> (
    None
):
    given = Pooled()
    given.answer(range(700))
    given.answer([*range(600), *range(50)])
    assert given.pool.cached.evict(A) == 512 + 188 + 138


def test_eviction_tells_nothing_of_other_conversations() -> None:
    counts = []
    for is_shared in (False, True):
        given = Pooled()
        given.answer(range(700))
        if is_shared:
            given.answer([*range(600), 7], B)
        counts.append(given.pool.cached.evict(A))
        assert slabs_of(given.pool, A) == []
        if is_shared:
            assert given.answer([*range(600), 7], B) == 601
            assert given.pool.cached.evict(B) == 601
        assert given.pool.used_bytes == 0
    assert counts == [700, 700]


def test_the_conversation_used_least_recently_is_forgotten_when_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cached_pages, "CONVERSATIONS_MAX", 3)
    given = Pooled()
    for number in range(3):
        given.answer([number, 1, 2], b"%d" % number)
    given.pool.cached.pin([0, 1, 2], b"0", 9.0)
    running = given.pool.open([1, 1, 2, 3], D, b"1")
    given.answer([3, 1, 2], b"3")
    assert [bool(slabs_of(given.pool, b"%d" % number)) for number in range(4)] == [
        True,
        True,
        False,
        True,
    ]
    given.pool.close(running)


# --- pins -----------------------------------------------------------------------------


def test_a_pinned_prefix_stays_until_its_time() -> None:
    given = Pooled(slabs=6)
    given.answer(range(1100))
    assert given.pool.cached.pin(range(1100), A, 100.0) == 1100
    for number in range(5):
        given.answer(range(5000 * number, 5000 * number + 1400), B)
    assert given.answer(range(1100)) == 1100
    given.pool.cached.expire_pins(99.9)
    assert slabs_of(given.pool, A)[-1].pinned_until == 100.0
    given.pool.cached.expire_pins(100.0)
    for number in range(5):
        given.answer(range(5000 * number, 5000 * number + 3000), B)
    assert given.answer(range(1100)) == 0


def test_a_pin_covers_the_part_that_is_cached() -> None:
    given = Pooled()
    given.answer(range(600))
    assert given.pool.cached.pin([*range(530), 9, 9], A, 5.0) == 530
    assert given.pool.cached.pin([9], A, 5.0) == given.pool.cached.pin([1], B, 5.0) == 0
    assert [page.pinned_until for page in slabs_of(given.pool, A)] == [None, 5.0]


def test_pins_hold_half_of_the_memory_at_most() -> None:
    given = Pooled(slabs=6)
    given.answer(range(1600))
    with pytest.raises(CacheBudgetExceeded, match="4 slabs to keep; the host keeps at most 3"):
        given.pool.cached.pin(range(1600), A, 9.0)
    assert given.pool.cached.pin(range(1500), A, 9.0) == 1500
    assert given.answer(range(7000, 7100), B) == 0
    with pytest.raises(CacheBusy):
        given.pool.cached.pin(range(7000, 7100), B, 9.0)
    given.pool.cached.expire_pins(9.0)
    assert given.pool.cached.pin(range(7000, 7100), B, 9.0) == 100


def test_a_whole_context_has_room_beside_pins() -> None:
    given = Pooled(slabs=6)
    given.answer(range(1500))
    room = {"room_tokens": 3 * 512 + 1}
    with pytest.raises(CacheBudgetExceeded, match="keeps at most 2"):
        given.pool.cached.pin(range(1500), A, 9.0, **room)
    assert given.pool.cached.pin(range(1000), A, 9.0, **room) == 1000
    assert given.answer(range(5000, 5000 + room["room_tokens"]), B) == 0
    assert given.answer(range(1000)) == 1000


def test_there_are_few_pins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached_pages, "PINS_MAX", 1)
    given = Pooled()
    given.answer(range(600))
    assert given.pool.cached.pin(range(600), A, 9.0) == 600
    with pytest.raises(CacheBusy, match="in 1 contexts"):
        given.pool.cached.pin(range(100), A, 9.0)
    assert given.pool.cached.pin(range(600), A, 11.0) == 600


def test_a_pinned_conversation_can_be_evicted() -> None:
    given = Pooled()
    given.answer(range(600))
    given.pool.cached.pin(range(600), A, 9.0)
    assert given.pool.cached.evict(A) == 600
    assert given.pool.used_bytes == 0
    given.pool.cached.expire_pins(10.0)


# --- uses -----------------------------------------------------------------------------


def test_the_slabs_of_a_conversation_know_their_other_uses_runs_and_pins() -> None:
    given = Pooled()
    given.answer(range(700))
    running = given.pool.open([*range(512), 7], D, B)
    given.pool.cached.pin(range(700), A, 8.0)
    assert slabs_of(given.pool, A) == [
        CachedSlab(index=0, tokens=512, shared_with=1, running=1, pinned_until=None),
        CachedSlab(index=1, tokens=188, shared_with=0, running=0, pinned_until=8.0),
    ]
    assert slabs_of(given.pool, B) == [
        CachedSlab(index=0, tokens=512, shared_with=1, running=1, pinned_until=None)
    ]
    given.pool.close(running)
    assert slabs_of(given.pool, C) == []


# --- looked at --------------------------------------------------------------------------


def test_a_peek_tells_what_a_context_would_find() -> None:
    given = Pooled()
    given.answer(range(700))
    given.answer([*range(600), 7], B)
    looked = given.pool.cached.peek
    assert looked(range(2000), A, D) == (700, 700)
    assert looked(range(700), B, D) == (600, 700)
    assert looked(range(2000), C, D) == (0, 700)
    assert looked(range(2000), C, E) == (0, 0)
    # Its own pages are found under the keys of a new domain, and no others there (PAGE-9).
    assert looked(range(700), B, E) == (600, 600)
    assert looked([1, 2], A, D) == (0, 0)


def test_a_running_sequences_tokens_are_seen() -> None:
    given = Pooled()
    sequence = given.pool.open(range(100), D, A)
    extend(given.pool, given.memory, sequence, range(90))
    assert given.pool.cached.peek(range(100), A, D) == (90, 90)
    assert given.pool.cached.peek(range(100), B, D) == (0, 90)
    given.pool.close(sequence)


def test_a_peek_changes_neither_what_is_found_nor_what_is_evicted_next() -> None:
    for seed in range(20):
        chance, twins = random.Random(seed), (Pooled(6), Pooled(6))
        for _ in range(30):
            ids = [*range(chance.choice([0, 100, 600])), *[chance.randrange(3)] * 300]
            key, domain = chance.choice([A, B, C]), chance.choice([D, E])
            for other in (A, B, C):  # the first twin alone is looked at
                twins[0].pool.cached.peek([*ids, 0], other, chance.choice([D, E]))
            own, found = twins[0].pool.cached.peek(ids, key, domain)
            sequence = twins[0].begin([*ids, 0], key, domain)
            assert (sequence.own_tokens, sequence.cached_tokens) == (own, found)
            twins[0].pool.close(sequence)
            assert twins[1].answer(ids, key, domain) == found
            assert twins[0].pool.counters == twins[1].pool.counters
        assert twins[0].pool.counters.evictions
