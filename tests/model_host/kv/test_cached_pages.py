"""Cached pages by conversation: evicted, pinned, listed and read, each for its own pages."""

import numpy as np
import pytest

from model_host.errors import CacheBudgetExceeded, CacheBusy
from model_host.kv import cached_pages
from model_host.kv.cached_pages import CachedSlab, Reading
from model_host.kv.lineage import Lineage
from tests.model_host.kv.paged import extend, keys_and_values
from tests.model_host.kv.pooled import A, B, C, D, Pooled

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
        assert given.pool.cached.pages(A) == []
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
    assert [bool(given.pool.cached.pages(b"%d" % number)) for number in range(4)] == [
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
    assert given.pool.cached.pages(A)[-1].pinned_until == 100.0
    given.pool.cached.expire_pins(100.0)
    for number in range(5):
        given.answer(range(5000 * number, 5000 * number + 3000), B)
    assert given.answer(range(1100)) == 0


def test_a_pin_covers_the_part_that_is_cached() -> None:
    given = Pooled()
    given.answer(range(600))
    assert given.pool.cached.pin([*range(530), 9, 9], A, 5.0) == 530
    assert given.pool.cached.pin([9], A, 5.0) == given.pool.cached.pin([1], B, 5.0) == 0
    assert [page.pinned_until for page in given.pool.cached.pages(A)] == [None, 5.0]


def test_pins_hold_half_of_the_memory_at_most() -> None:
    given = Pooled(slabs=6)
    given.answer(range(1600))
    with pytest.raises(CacheBudgetExceeded, match="half"):
        given.pool.cached.pin(range(1600), A, 9.0)
    assert given.pool.cached.pin(range(1500), A, 9.0) == 1500


def test_there_are_few_pins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached_pages, "PINS_MAX", 1)
    given = Pooled()
    given.answer(range(600))
    assert given.pool.cached.pin(range(600), A, 9.0) == 600
    with pytest.raises(CacheBudgetExceeded, match="at most 1 pins"):
        given.pool.cached.pin(range(100), A, 9.0)


def test_a_pinned_conversation_can_be_evicted() -> None:
    given = Pooled()
    given.answer(range(600))
    given.pool.cached.pin(range(600), A, 9.0)
    assert given.pool.cached.evict(A) == 600
    assert given.pool.used_bytes == 0
    given.pool.cached.expire_pins(10.0)


# --- listing --------------------------------------------------------------------------


def test_the_listing_shows_tokens_sharing_runs_and_pins() -> None:
    given = Pooled()
    given.answer(range(700))
    running = given.pool.open([*range(512), 7], D, B)
    given.pool.cached.pin(range(700), A, 8.0)
    assert given.pool.cached.pages(A) == [
        CachedSlab(index=0, tokens=512, shared_with=1, running=1, pinned_until=None),
        CachedSlab(index=1, tokens=188, shared_with=0, running=0, pinned_until=8.0),
    ]
    assert given.pool.cached.pages(B) == [
        CachedSlab(index=0, tokens=512, shared_with=1, running=1, pinned_until=None)
    ]
    given.pool.close(running)
    assert given.pool.cached.pages(C) == []


# --- reading --------------------------------------------------------------------------


def test_a_context_is_read_in_groups_with_the_keys_of_its_domain() -> None:
    given = Pooled()
    ids = [n * 7 % 1000 for n in range(1100)]
    given.answer(ids)
    with given.pool.cached.reading(ids, A) as reading:
        assert reading.tokens == 1100
        groups = list(reading.groups())
    assert [group.stop - group.start for group in groups] == [64] * 17 + [12]
    lineage, at = Lineage(D, ids), 0
    expected = keys_and_values(ids)
    for group in groups:
        payload = given.memory.read(group.slab, group.start, group.stop)
        at += group.stop - group.start
        assert np.array_equal(payload.view(np.uint64), expected[at - len(payload) // 8 : at])
        assert group.lineage == lineage.at(at)


def test_only_the_own_part_of_a_context_is_read() -> None:
    given = Pooled()
    given.answer(range(700))
    with given.pool.cached.reading(range(700), B) as reading:
        assert (reading.tokens, list(reading.groups())) == (0, [])
    given.answer([*range(600), 7], B)
    with given.pool.cached.reading(range(700), B) as reading:
        assert reading.tokens == 600


def test_what_is_read_stays_and_its_conversation_too() -> None:
    given = Pooled(slabs=6)
    given.answer(range(1100))
    with given.pool.cached.reading(range(1100), A) as reading:
        for number in range(1, 6):
            given.answer(range(5000 * number, 5000 * number + 1400), B)
        with pytest.raises(CacheBusy):
            given.pool.cached.evict(A)
        for group in reading.groups():
            assert given.memory.read(group.slab, group.start, group.stop).any()
    given.pool.check_integrity()
    assert given.pool.cached.evict(A) == 1100


def test_a_tail_can_be_read_while_its_sequence_goes_on() -> None:
    given = Pooled()
    sequence = given.pool.open(range(1000), D, A)
    extend(given.pool, given.memory, sequence, range(500))
    with given.pool.cached.reading(range(500), A) as reading:
        groups = reading.groups()
        first = next(groups)
        assert first.slab == sequence.slabs[0]
        extend(given.pool, given.memory, sequence, range(500, 520))  # the slab is full, and moves
        after = next(groups)
        assert after.slab != first.slab
        payload = given.memory.read(after.slab, after.start, after.stop)
        assert np.array_equal(payload.view(np.uint64), keys_and_values(range(500))[64:128])
        given.pool.check_integrity()
    given.pool.close(sequence)
    given.pool.check_integrity()


@pytest.mark.parametrize("keep", [300, 100, 0])
def test_a_rollback_leaves_a_tail_that_is_being_read_as_it_is(keep: int) -> None:
    given = Pooled()
    sequence = given.pool.open(range(1000), D, A)
    extend(given.pool, given.memory, sequence, range(400))
    with given.pool.cached.reading(range(400), A) as reading:
        assert given.pool.rollback(sequence, keep) == keep
        extend(given.pool, given.memory, sequence, [7] * 300)
        given.pool.check_integrity()
        assert _content(given, reading) == keys_and_values(range(400)).tolist()
    given.pool.close(sequence)
    given.pool.check_integrity()


def test_a_slab_that_is_being_read_is_not_replaced_by_an_equal_one() -> None:
    given = Pooled()
    sequence = given.pool.open(range(1000), D, A)
    extend(given.pool, given.memory, sequence, range(400))
    given.answer(range(512), B)
    with given.pool.cached.reading(range(400), A) as reading:
        extend(given.pool, given.memory, sequence, range(400, 520))
        given.pool.check_integrity()
        assert _content(given, reading) == keys_and_values(range(400)).tolist()
    assert given.pool.counters.merges == 0
    given.pool.close(sequence)
    given.pool.check_integrity()


def _content(given: Pooled, reading: Reading) -> list[int]:
    parts = [given.memory.read(g.slab, g.start, g.stop) for g in reading.groups()]
    return np.concatenate(parts).view(np.uint64).tolist()
