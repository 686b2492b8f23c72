"""Derived state never changes output: the same bits, however the work is divided."""

import random
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
import torch

from model_host.engine.torch_engine import TorchEngine
from model_host.engine_api import CHUNK_TOKENS, Logits, Slice
from model_host.errors import CacheBudgetExceeded
from model_host.io.checkpoint_files import Checkpoints
from model_host.kv.cache import KVCache
from model_host.prefill import prefill
from model_host.refusals import ContextTooLong
from tests.model_host.engine import tiny_model

TOKENS = 560  # more than one slab


def _ids(engine: TorchEngine, count: int = TOKENS, seed: int = 5) -> list[int]:
    rng = np.random.default_rng(seed)
    low = min(17, engine.config.vocab // 2)
    return [int(token) for token in rng.integers(low, engine.config.vocab, count)]


def _run(engine: TorchEngine, ids: list[int], cuts: Iterable[int], cache: KVCache) -> Logits:
    """Append `ids` in pieces of the given sizes; return the logits of every row."""
    rows, at = [], 0
    for size in cuts:
        part = ids[at : at + size]
        if part:
            rows += engine.step([Slice(cache, part, logits=len(part))])
        at += size
    return np.concatenate(rows)


def _decode(engine: TorchEngine, *tokens: tuple[KVCache, int]) -> list[Logits]:
    """Append one token to each of several caches in one step."""
    batch = [Slice(cache, (token_id,)) for cache, token_id in tokens]
    return [logits[-1] for logits in engine.step(batch)]


def _same_kv(a: KVCache, b: KVCache) -> bool:
    return a.tokens == b.tokens and np.array_equal(a.read(0, a.tokens), b.read(0, b.tokens))


@pytest.fixture(scope="module")
def one_shot() -> Callable[[TorchEngine], tuple[KVCache, Logits]]:
    """Each engine's reference: the fewest, largest pieces."""
    done: dict[str, tuple[KVCache, Logits]] = {}

    def run(engine: TorchEngine) -> tuple[KVCache, Logits]:
        if engine.numerics not in done:
            cache = engine.new_cache()
            done[engine.numerics] = cache, _run(engine, _ids(engine), [512, 512], cache)
        return done[engine.numerics]

    return run


OneShot = Callable[[TorchEngine], tuple[KVCache, Logits]]


def test_pieces_of_any_size_give_the_same_bits(engine: TorchEngine, one_shot: OneShot) -> None:
    reference, logits = one_shot(engine)
    rng = random.Random(11)
    cuts = [rng.choice([1, 2, 3, 7, 15, 16, 33, 64, 100, 200]) for _ in range(TOKENS)]
    cache = engine.new_cache()
    assert np.array_equal(_run(engine, _ids(engine), cuts, cache), logits)
    assert _same_kv(cache, reference)


def test_decoding_gives_the_bits_of_prefill(engine: TorchEngine, one_shot: OneShot) -> None:
    reference, logits = one_shot(engine)
    ids, cache = _ids(engine), engine.new_cache()
    prefill(engine, cache, ids[:500])
    for at in range(500, 525):  # over the slab's border
        assert np.array_equal(_decode(engine, (cache, ids[at]))[0], logits[at])
    assert np.array_equal(cache.read(0, 525), reference.read(0, 525))


def test_restoring_and_computing_the_rest_gives_the_same_bits(
    engine: TorchEngine, one_shot: OneShot, tmp_path: Path
) -> None:
    reference, logits = one_shot(engine)
    ids, namespace = _ids(engine), engine.namespace(b"salt").digest
    store = Checkpoints(tmp_path, mac_key=b"k" * 32, budget_bytes=1 << 30)
    store.save(b"conversation", namespace, b"s" * 32, b"", ids[:530], reference)
    cache = engine.new_cache()
    assert store.restore(b"conversation", namespace, ids, cache) == 530
    rest = _run(engine, ids[530:], [1, 20, 9], cache)
    assert np.array_equal(rest, logits[530:])
    assert _same_kv(cache, reference)


def test_truncating_leaves_no_trace(engine: TorchEngine, one_shot: OneShot) -> None:
    reference, logits = one_shot(engine)
    ids, cache = _ids(engine), engine.new_cache()
    prefill(engine, cache, ids[:100] + _ids(engine, 60, seed=6))
    cache.truncate(100)
    assert np.array_equal(_run(engine, ids[100:], [400, 60], cache), logits[100:])
    assert _same_kv(cache, reference)


def test_a_batch_gives_the_bits_of_each_alone(engine: TorchEngine) -> None:
    contexts = [_ids(engine, count, seed=count) for count in (3, 60, 130)]
    alone, together = [], []
    for ids in contexts:
        cache = engine.new_cache()
        prefill(engine, cache, ids)
        alone.append((cache, _decode(engine, (cache, 77))[0]))
    for ids in contexts:
        cache = engine.new_cache()
        prefill(engine, cache, ids)
        together.append(cache)
    logits = _decode(engine, *((cache, 77) for cache in together))
    for (cache, expected), other, got in zip(alone, together, logits, strict=True):
        assert np.array_equal(got, expected)
        assert _same_kv(cache, other)


def test_prefill_beside_decode_gives_the_bits_of_each_alone(engine: TorchEngine) -> None:
    first, second = _ids(engine, 90, seed=1), _ids(engine, 41, seed=2)
    a, b = engine.new_cache(), engine.new_cache()
    prefill(engine, a, first)
    mixed = engine.step([Slice(a, [5]), Slice(b, second, logits=2)])
    alone_a, alone_b = engine.new_cache(), engine.new_cache()
    prefill(engine, alone_a, first)
    assert np.array_equal(mixed[0][0], _decode(engine, (alone_a, 5))[0])
    (alone,) = engine.step([Slice(alone_b, second, logits=2)])
    assert np.array_equal(mixed[1], alone)
    assert _same_kv(a, alone_a)
    assert _same_kv(b, alone_b)


def test_the_number_of_threads_changes_no_bit(engine: TorchEngine) -> None:
    ids, results = _ids(engine, 150), []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            cache = engine.new_cache()
            results.append((_run(engine, ids, [140, 1, 9], cache), cache))
    finally:
        torch.set_num_threads(before)
    assert np.array_equal(results[0][0], results[1][0])
    assert _same_kv(results[0][1], results[1][1])


def test_a_step_that_fails_leaves_the_caches_as_they_were(tiny: TorchEngine) -> None:
    def refuse(grown_bytes: int) -> None:
        raise CacheBudgetExceeded

    good, poor, full = tiny.new_cache(), tiny.new_cache(refuse), tiny.new_cache()
    prefill(tiny, good, _ids(tiny, 20))
    prefill(tiny, full, _ids(tiny, tiny.config.context_tokens))
    before = good.read(0, 20)
    with pytest.raises(CacheBudgetExceeded):
        _decode(tiny, (good, 3), (poor, 3))
    with pytest.raises(ContextTooLong):
        _decode(tiny, (good, 3), (full, 3))
    with pytest.raises(IndexError):
        _decode(tiny, (good, tiny.config.vocab))  # no such token
    assert good.tokens == 20
    assert np.array_equal(good.read(0, 20), before)
    assert not good.layer(0)[:, :, 20:].any()


def test_a_step_returns_as_many_rows_as_are_asked_for(tiny: TorchEngine) -> None:
    ids = _ids(tiny, 130)
    every = _run(tiny, ids, [130], tiny.new_cache())
    for wanted in (0, 1, 2, 129, 130):
        (rows,) = tiny.step([Slice(tiny.new_cache(), ids, logits=wanted)])
        assert rows.dtype == np.float32
        assert np.array_equal(rows, every[130 - wanted :])


@pytest.mark.parametrize("counts", [(), (0,), (CHUNK_TOKENS + 1,), (CHUNK_TOKENS, 1)])
def test_a_step_has_one_to_512_new_tokens(tiny: TorchEngine, counts: tuple[int, ...]) -> None:
    with pytest.raises(AssertionError):
        tiny.step([Slice(tiny.new_cache(), [1] * count) for count in counts])


def test_a_step_has_each_cache_once(tiny: TorchEngine) -> None:
    cache = tiny.new_cache()
    with pytest.raises(AssertionError):
        tiny.step([Slice(cache, [1]), Slice(cache, [2])])
    assert cache.tokens == 0


def test_a_tiny_model_of_another_shape_is_exact_too(tiny: TorchEngine) -> None:
    assert tiny.bitwise
    assert len(tiny_model.TOKENS) == tiny.config.vocab
    ids, a, b = _ids(tiny, 900), tiny.new_cache(), tiny.new_cache()
    assert np.array_equal(_run(tiny, ids, [512, 388], a), _run(tiny, ids, [3] * 300, b))
    assert _same_kv(a, b)
