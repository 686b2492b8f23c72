"""Cached pages by conversation: evicted, pinned, listed and read, each for its own pages."""

from collections.abc import Sequence

import numpy as np
import pytest

from model_host.errors import CacheBudgetExceeded, CacheBusy
from model_host.kv import cached_pages
from model_host.kv.cached_pages import CachedSlab
from model_host.kv.lineage import Lineage
from model_host.kv.page_pool import PagePool
from tests.model_host.kv.paged import SLAB_BYTES, NumpyMemory, extend, keys_and_values

D, E = b"d" * 32, b"e" * 32
A, B, C = b"a", b"b", b"c"


class Used:
    """A pool in which contexts are answered one after the other."""

    def __init__(self, slabs: int = 20) -> None:
        self.memory = NumpyMemory(100)
        self.pool = PagePool(self.memory, tail_slots=4, budget_bytes=(slabs + 1) * SLAB_BYTES)
        self.cached = self.pool.cached

    def answer(self, ids: Sequence[int], key: bytes = A, domain: bytes = D) -> int:
        """Compute a context and close it; return the number of tokens found."""
        sequence = self.pool.open([*ids, 0], domain, key)
        extend(self.pool, self.memory, sequence, ids[sequence.tokens :])
        self.pool.close(sequence)
        self.pool.check_integrity()
        return sequence.cached_tokens


# --- eviction -------------------------------------------------------------------------


def test_a_running_conversation_is_not_evicted_and_an_evicted_one_starts_empty() -> None:
    given = Used()
    given.answer(range(700))
    sequence = given.pool.open(range(5), D, A)
    with pytest.raises(CacheBusy) as caught:
        given.cached.evict(A)
    assert caught.value.retryable
    given.pool.close(sequence)
    assert given.cached.evict(A) == 700
    assert given.cached.evict(A) == given.cached.evict(b"never there") == 0
    assert given.pool.used_bytes == 0
    assert given.answer(range(700)) == 0


def test_branches_of_a_conversation_are_evicted_together_and_their_common_part_counts_once() -> (
    None
):
    given = Used()
    given.answer(range(700))
    given.answer([*range(600), *range(50)])
    assert given.cached.evict(A) == 512 + 188 + 138


def test_eviction_tells_nothing_of_other_conversations() -> None:
    counts = []
    for is_shared in (False, True):
        given = Used()
        given.answer(range(700))
        if is_shared:
            given.answer([*range(600), 7], B)
        counts.append(given.cached.evict(A))
        assert given.cached.pages(A) == []
        if is_shared:
            assert given.answer([*range(600), 7], B) == 601
            assert given.cached.evict(B) == 601
        assert given.pool.used_bytes == 0
    assert counts == [700, 700]


def test_the_conversation_used_least_recently_is_forgotten_when_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cached_pages, "CONVERSATIONS_MAX", 3)
    given = Used()
    for number in range(3):
        given.answer([number, 1, 2], b"%d" % number)
    given.cached.pin([0, 1, 2], b"0", 9.0)
    running = given.pool.open([1, 1, 2, 3], D, b"1")
    given.answer([3, 1, 2], b"3")
    assert [bool(given.cached.pages(b"%d" % number)) for number in range(4)] == [
        True,
        True,
        False,
        True,
    ]
    given.pool.close(running)


# --- pins -----------------------------------------------------------------------------


def test_a_pinned_prefix_stays_until_its_time() -> None:
    given = Used(slabs=6)
    given.answer(range(1100))
    assert given.cached.pin(range(1100), A, 100.0) == 1100
    for number in range(5):
        given.answer(range(5000 * number, 5000 * number + 1400), B)
    assert given.answer(range(1100)) == 1100
    given.cached.expire_pins(99.9)
    assert given.cached.pages(A)[-1].pinned_until == 100.0
    given.cached.expire_pins(100.0)
    for number in range(5):
        given.answer(range(5000 * number, 5000 * number + 3000), B)
    assert given.answer(range(1100)) == 0


def test_a_pin_covers_the_part_that_is_cached() -> None:
    given = Used()
    given.answer(range(600))
    assert given.cached.pin([*range(530), 9, 9], A, 5.0) == 530
    assert given.cached.pin([9], A, 5.0) == given.cached.pin([1], B, 5.0) == 0
    assert [page.pinned_until for page in given.cached.pages(A)] == [None, 5.0]


def test_pins_hold_half_of_the_memory_at_most() -> None:
    given = Used(slabs=6)
    given.answer(range(1600))
    with pytest.raises(CacheBudgetExceeded, match="half"):
        given.cached.pin(range(1600), A, 9.0)
    assert given.cached.pin(range(1500), A, 9.0) == 1500


def test_there_are_few_pins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached_pages, "PINS_MAX", 1)
    given = Used()
    given.answer(range(600))
    assert given.cached.pin(range(600), A, 9.0) == 600
    with pytest.raises(CacheBudgetExceeded, match="at most 1 pins"):
        given.cached.pin(range(100), A, 9.0)


def test_a_pinned_conversation_can_be_evicted() -> None:
    given = Used()
    given.answer(range(600))
    given.cached.pin(range(600), A, 9.0)
    assert given.cached.evict(A) == 600
    assert given.pool.used_bytes == 0
    given.cached.expire_pins(10.0)


# --- listing --------------------------------------------------------------------------


def test_the_listing_shows_tokens_sharing_runs_and_pins() -> None:
    given = Used()
    given.answer(range(700))
    running = given.pool.open([*range(512), 7], D, B)
    given.cached.pin(range(700), A, 8.0)
    assert given.cached.pages(A) == [
        CachedSlab(index=0, tokens=512, shared_with=1, running=1, pinned_until=None),
        CachedSlab(index=1, tokens=188, shared_with=0, running=0, pinned_until=8.0),
    ]
    assert given.cached.pages(B) == [
        CachedSlab(index=0, tokens=512, shared_with=1, running=1, pinned_until=None)
    ]
    given.pool.close(running)
    assert given.cached.pages(C) == []


# --- reading --------------------------------------------------------------------------


def test_a_context_is_read_in_groups_with_the_keys_of_its_domain() -> None:
    given = Used()
    ids = [n * 7 % 1000 for n in range(1100)]
    given.answer(ids)
    with given.cached.reading(ids, A) as reading:
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
    given = Used()
    given.answer(range(700))
    with given.cached.reading(range(700), B) as reading:
        assert (reading.tokens, list(reading.groups())) == (0, [])
    given.answer([*range(600), 7], B)
    with given.cached.reading(range(700), B) as reading:
        assert reading.tokens == 600


def test_what_is_read_stays_and_its_conversation_too() -> None:
    given = Used(slabs=6)
    given.answer(range(1100))
    with given.cached.reading(range(1100), A) as reading:
        for number in range(1, 6):
            given.answer(range(5000 * number, 5000 * number + 1400), B)
        with pytest.raises(CacheBusy):
            given.cached.evict(A)
        for group in reading.groups():
            assert given.memory.read(group.slab, group.start, group.stop).any()
    given.pool.check_integrity()
    assert given.cached.evict(A) == 1100


def test_a_tail_can_be_read_while_its_sequence_goes_on() -> None:
    given = Used()
    sequence = given.pool.open(range(1000), D, A)
    extend(given.pool, given.memory, sequence, range(500))
    with given.cached.reading(range(500), A) as reading:
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
