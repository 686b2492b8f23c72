"""Derived state never changes output: the same bits, however the work was cut."""

import random
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
import torch

from model_host.engine.step import Slice, step
from model_host.engine.torch_engine import TorchEngine
from model_host.engine_api import Logits
from model_host.errors import CacheBudgetExceeded, PrefillCancelled
from model_host.io.checkpoint_files import Checkpoints
from model_host.kv.cache import KVCache
from model_host.refusals import ContextTooLong
from tests.model_host.engine import tiny_model

TOKENS = 560  # more than one slab


def _ids(engine: TorchEngine, count: int = TOKENS, seed: int = 5) -> list[int]:
    rng = np.random.default_rng(seed)
    low = min(17, engine.config.vocab // 2)
    return [int(token) for token in rng.integers(low, engine.config.vocab, count)]


def _run(engine: TorchEngine, ids: list[int], cuts: Iterable[int], cache: KVCache) -> torch.Tensor:
    """Append `ids` in pieces of the given sizes; return the logits of every row."""
    rows, at = [], 0
    for size in cuts:
        part = ids[at : at + size]
        if part:
            rows += step(engine.model, [Slice(cache, part, logits=len(part))])
        at += size
    return torch.cat(rows)


def _same_kv(a: KVCache, b: KVCache) -> bool:
    return a.tokens == b.tokens and np.array_equal(a.read(0, a.tokens), b.read(0, b.tokens))


@pytest.fixture(scope="module")
def one_shot() -> Callable[[TorchEngine], tuple[KVCache, torch.Tensor]]:
    """Each engine's reference: the fewest, largest pieces."""
    done: dict[str, tuple[KVCache, torch.Tensor]] = {}

    def run(engine: TorchEngine) -> tuple[KVCache, torch.Tensor]:
        if engine.dtype not in done:
            cache = engine.new_cache()
            done[engine.dtype] = cache, _run(engine, _ids(engine), [512, 512], cache)
        return done[engine.dtype]

    return run


OneShot = Callable[[TorchEngine], tuple[KVCache, torch.Tensor]]


def test_pieces_of_any_size_give_the_same_bits(engine: TorchEngine, one_shot: OneShot) -> None:
    reference, logits = one_shot(engine)
    rng = random.Random(11)
    cuts = [rng.choice([1, 2, 3, 7, 15, 16, 33, 64, 100, 200]) for _ in range(TOKENS)]
    cache = engine.new_cache()
    assert torch.equal(_run(engine, _ids(engine), cuts, cache), logits)
    assert _same_kv(cache, reference)


def test_decoding_gives_the_bits_of_prefill(engine: TorchEngine, one_shot: OneShot) -> None:
    reference, logits = one_shot(engine)
    ids, cache = _ids(engine), engine.new_cache()
    engine.prefill(cache, ids[:500])
    for at in range(500, 525):  # over the slab's border
        assert np.array_equal(engine.decode(cache, ids[at]), logits[at].numpy())
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
    assert torch.equal(rest, logits[530:])
    assert _same_kv(cache, reference)


def test_truncating_leaves_no_trace(engine: TorchEngine, one_shot: OneShot) -> None:
    reference, logits = one_shot(engine)
    ids, cache = _ids(engine), engine.new_cache()
    engine.prefill(cache, ids[:100] + _ids(engine, 60, seed=6))
    cache.truncate(100)
    assert torch.equal(_run(engine, ids[100:], [400, 60], cache), logits[100:])
    assert _same_kv(cache, reference)


def test_a_batch_gives_the_bits_of_each_alone(engine: TorchEngine) -> None:
    contexts = [_ids(engine, count, seed=count) for count in (3, 60, 130)]
    alone, together = [], []
    for ids in contexts:
        cache = engine.new_cache()
        engine.prefill(cache, ids)
        alone.append((cache, engine.decode(cache, 77)))
    for ids in contexts:
        cache = engine.new_cache()
        engine.prefill(cache, ids)
        together.append(cache)
    logits = engine.decode_batch([(cache, 77) for cache in together])
    for (cache, expected), other, got in zip(alone, together, logits, strict=True):
        assert np.array_equal(got, expected)
        assert _same_kv(cache, other)


def test_prefill_beside_decode_gives_the_bits_of_each_alone(engine: TorchEngine) -> None:
    first, second = _ids(engine, 90, seed=1), _ids(engine, 41, seed=2)
    a, b = engine.new_cache(), engine.new_cache()
    engine.prefill(a, first)
    mixed = step(engine.model, [Slice(a, [5]), Slice(b, second, logits=2)])
    alone_a, alone_b = engine.new_cache(), engine.new_cache()
    engine.prefill(alone_a, first)
    assert np.array_equal(mixed[0][0].numpy(), engine.decode(alone_a, 5))
    (alone,) = step(engine.model, [Slice(alone_b, second, logits=2)])
    assert torch.equal(mixed[1], alone)
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
    assert torch.equal(results[0][0], results[1][0])
    assert _same_kv(results[0][1], results[1][1])


def test_prefill_reports_progress_and_returns_the_last_row(tiny: TorchEngine) -> None:
    seen: list[tuple[int, int]] = []
    ids, rows = _ids(tiny), _run(tiny, _ids(tiny), [512, 512], tiny.new_cache())
    last = tiny.prefill(tiny.new_cache(), ids, lambda done, total: seen.append((done, total)))
    assert seen == [(512, TOKENS), (TOKENS, TOKENS)]
    assert last.dtype == np.float32
    assert np.array_equal(last, rows[-1].numpy())


def test_a_cancelled_prefill_keeps_its_finished_chunks(tiny: TorchEngine) -> None:
    ids, cache, calls = _ids(tiny, 1000), tiny.new_cache(), iter([False, True])
    with pytest.raises(PrefillCancelled):
        tiny.prefill(cache, ids, cancelled=lambda: next(calls))
    assert cache.tokens == 512
    whole = tiny.new_cache()
    assert np.array_equal(tiny.prefill(cache, ids[512:]), tiny.prefill(whole, ids))
    assert _same_kv(cache, whole)


def test_more_tokens_than_the_context_are_refused_before_any_work(tiny: TorchEngine) -> None:
    cache = tiny.new_cache()
    tiny.prefill(cache, _ids(tiny, 1000))
    for ids in (_ids(tiny, 25), [1] * 600):
        with pytest.raises(ContextTooLong):
            tiny.prefill(cache, ids)
    assert cache.tokens == 1000
    tiny.prefill(cache, _ids(tiny, 24))
    with pytest.raises(ContextTooLong):
        tiny.decode(cache, 1)


def test_a_step_that_fails_leaves_the_caches_as_they_were(tiny: TorchEngine) -> None:
    def refuse(grown_bytes: int) -> None:
        raise CacheBudgetExceeded

    good, poor = tiny.new_cache(), tiny.new_cache(refuse)
    tiny.prefill(good, _ids(tiny, 20))
    before: Logits = good.read(0, 20)
    with pytest.raises(CacheBudgetExceeded):
        tiny.decode_batch([(good, 3), (poor, 3)])
    with pytest.raises(IndexError):
        tiny.decode(good, tiny.config.vocab)  # no such token
    assert good.tokens == 20
    assert np.array_equal(good.read(0, 20), before)
    assert not good.layer(0)[:, :, 20:].any()


def test_scoring_hands_out_the_logits_of_every_row(tiny: TorchEngine) -> None:
    ids, rows, starts = _ids(tiny, 700), [], []
    cache = tiny.new_cache()
    tiny.prefill(cache, ids[:10])
    tiny.score(cache, ids[10:], lambda s: (rows.append(s.logits), starts.append(s.start)))
    assert starts == [10, 522]
    assert np.array_equal(np.concatenate(rows)[-1], tiny.prefill(tiny.new_cache(), ids))
    assert len(np.concatenate(rows)) == 690


def test_a_tiny_model_of_another_shape_is_exact_too(tiny: TorchEngine) -> None:
    assert tiny.bitwise
    assert len(tiny_model.TOKENS) == tiny.config.vocab
    ids, a, b = _ids(tiny, 900), tiny.new_cache(), tiny.new_cache()
    assert torch.equal(_run(tiny, ids, [512, 388], a), _run(tiny, ids, [3] * 300, b))
    assert _same_kv(a, b)
