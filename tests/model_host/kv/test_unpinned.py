"""Pages that nothing keeps in memory: read while they are there, refused once they are not."""

import numpy as np
import pytest

from model_host.errors import CheckpointDropped
from tests.model_host.kv.paged import extend, keys_and_values
from tests.model_host.kv.pooled import A, B, D, Pooled


def bytes_of(ids: list[int], start: int, stop: int) -> np.ndarray:
    return keys_and_values(ids)[start:stop].view(np.uint8)


def test_the_cached_prefix_is_read_group_by_group() -> None:
    given, ids = Pooled(), list(range(700))
    given.answer(ids)
    source = given.pool.cached.unpinned([*ids[:650], 9], A)
    assert (source.tokens, source.bytes_per_token) == (650, 8)
    for start, stop in ((0, 64), (448, 512), (512, 576), (640, 650)):
        assert np.array_equal(source.read(start, stop), bytes_of(ids, start, stop))
    assert given.pool.cached.unpinned(ids, B).tokens == 0


def test_a_conversation_that_goes_on_is_still_read() -> None:
    given, ids = Pooled(), list(range(600))
    given.answer(ids)
    source = given.pool.cached.unpinned(ids, A)
    sequence = given.pool.open([*ids, 7], D, A)
    extend(given.pool, given.memory, sequence, [*range(300)])
    assert np.array_equal(source.read(512, 576), bytes_of(ids, 512, 576))
    given.pool.close(sequence)
    assert np.array_equal(source.read(576, 600), bytes_of(ids, 576, 600))


def test_evicted_pages_are_refused_and_nothing_was_held() -> None:
    given, ids = Pooled(), list(range(700))
    given.answer(ids)
    source = given.pool.cached.unpinned(ids, A)
    assert given.pool.cached.evict(A) == 700
    given.answer(list(range(1000, 1700)), B)  # in the same slabs
    with pytest.raises(CheckpointDropped):
        source.read(0, 64)
    given.answer(ids)
    assert np.array_equal(source.read(640, 700), bytes_of(ids, 640, 700))


def test_positions_computed_after_other_tokens_are_refused() -> None:
    given, ids = Pooled(), list(range(100))
    sequence = given.pool.open(ids, D, A)
    extend(given.pool, given.memory, sequence, ids)
    source = given.pool.cached.unpinned(ids, A)
    assert given.pool.rollback(sequence, 10) == 10
    extend(given.pool, given.memory, sequence, [5, *ids[11:]])
    with pytest.raises(CheckpointDropped):
        source.read(64, 100)
    given.pool.close(sequence)


def test_all_idle_conversations_are_evicted_together() -> None:
    given = Pooled()
    given.answer(range(700))
    given.answer(range(50), B)
    sequence = given.pool.open([*range(50), 7], D, B)
    given.pool.cached.evict_all()
    assert given.pool.cached.domain(A) is None
    assert given.pool.cached.domain(B) == D
    given.pool.close(sequence)
    given.pool.cached.evict_all()
    assert given.pool.used_bytes == 0
