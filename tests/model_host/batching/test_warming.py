"""A context is computed chunk by chunk, and nothing stays reserved between two chunks."""

from collections.abc import Sequence

import pytest

from model_host.batching.warming import WARM_ROWS, warm_chunk
from model_host.kv.page_pool import PagePool
from model_host.kv.sequences import KVSequence
from tests.model_host.batching.test_batcher import NAMESPACE, Scene, saved, text
from tests.model_host.kv.paged import SLAB_BYTES
from tests.model_host.number_engine import NumberEngine

IDS = [7 * i % 90 for i in range(700)]
DOMAIN, A, B = b"d" * 32, b"a" * 32, b"b" * 32


def pool_of(engine: NumberEngine) -> PagePool:
    return PagePool(engine.memory, tail_slots=2, budget_bytes=8 * SLAB_BYTES)


def test_each_chunk_goes_on_where_the_last_one_ended() -> None:
    engine = NumberEngine()
    pool, done = pool_of(engine), 0
    while done < len(IDS):
        warmed = warm_chunk(engine, pool, IDS, DOMAIN, A)
        assert warmed.own_tokens == done
        assert warmed.tokens == min(done + WARM_ROWS, len(IDS))
        done = warmed.tokens
        pool.check_integrity()
    assert sum(map(sum, engine.steps)) == len(IDS)
    sequence = pool.open([*IDS, 1, 2], DOMAIN, A)
    assert sequence.tokens == len(IDS)


def test_a_warm_context_costs_no_step() -> None:
    engine = NumberEngine()
    pool = pool_of(engine)
    assert warm_chunk(engine, pool, IDS[:50], DOMAIN, A).tokens == 50
    steps = len(engine.steps)
    assert warm_chunk(engine, pool, IDS[:50], DOMAIN, A).own_tokens == 50
    assert len(engine.steps) == steps


def test_pages_of_others_are_not_counted_as_its_own() -> None:
    engine = NumberEngine()
    pool = pool_of(engine)
    warm_chunk(engine, pool, IDS[:100], DOMAIN, A)
    warmed = warm_chunk(engine, pool, IDS[:100], DOMAIN, B)
    assert (warmed.tokens, warmed.own_tokens) == (100, 0)


def test_a_step_that_fails_leaves_the_pool_whole() -> None:
    engine = NumberEngine()
    pool = pool_of(engine)
    engine.fails = {IDS[3]}
    with pytest.raises(RuntimeError):
        warm_chunk(engine, pool, IDS, DOMAIN, A)
    pool.check_integrity()
    engine.fails = set()
    assert warm_chunk(engine, pool, IDS, DOMAIN, A).tokens == WARM_ROWS


def test_a_chunk_that_restores_computes_nothing() -> None:
    engine = NumberEngine()
    pool = pool_of(engine)
    wanted: list[tuple[int, ...]] = []

    def restore(ids: Sequence[int], sequence: KVSequence) -> int:
        wanted.append(tuple(ids))
        pool.grow(sequence, 64)
        pool.advance(sequence, ids[:64])
        return 64

    warmed = warm_chunk(engine, pool, IDS, DOMAIN, A, restore)
    assert (warmed.tokens, warmed.own_tokens, warmed.restored_tokens) == (64, 0, 64)
    assert (wanted, engine.steps) == ([(*IDS, 0)], [])
    assert warm_chunk(engine, pool, IDS, DOMAIN, A, lambda _ids, _sequence: 0).tokens == 192


def test_tokens_of_an_incomplete_group_that_are_restored_are_not_cached_too() -> None:
    scene = Scene()
    prompt = text(800, 1)
    saved(scene, prompt)
    conversation = bytes([1]) * 32
    warm_chunk(scene.engine, scene.pool, prompt[:100], DOMAIN, conversation)

    def restore(ids: Sequence[int], sequence: KVSequence) -> int:
        return scene.batcher.restore_prefix(conversation, NAMESPACE, ids, sequence)

    warmed = warm_chunk(scene.engine, scene.pool, prompt, DOMAIN, conversation, restore)
    # As in the usage of an answer: the 36 tokens behind the first group are restored.
    assert (warmed.tokens, warmed.own_tokens, warmed.restored_tokens) == (800, 64, 736)
