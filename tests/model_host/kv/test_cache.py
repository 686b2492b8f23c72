"""KV caches: zero beyond valid positions, grown by slabs, read and written as bytes."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from model_host.engine.slab_cache import SlabCache
from model_host.errors import CacheBudgetExceeded
from model_host.model_config import ModelConfig

CONFIG = ModelConfig(
    layers=3,
    width=64,
    ffn_width=96,
    heads=4,
    kv_heads=2,
    head_width=16,
    vocab=10,
    context_tokens=4096,
    rope_base=1e4,
    rms_eps=1e-5,
    tied=True,
)
SLAB_BYTES = 512 * 3 * 2 * 2 * 16 * 2


def _cache(claim: Callable[[int], None] | None = None) -> SlabCache:
    return SlabCache(CONFIG, torch.bfloat16, claim)


def _fill(cache: SlabCache, stop: int, value: float = 1.0) -> None:
    start = cache.tokens
    cache.reserve(stop)
    for index in range(CONFIG.layers):
        cache.layer(index)[:, :, start:stop] = value
    cache.commit(stop)


def _is_zero_from(cache: SlabCache, start: int) -> bool:
    return not any(cache.layer(i)[:, :, start:].any() for i in range(CONFIG.layers))


def test_memory_grows_by_slabs_and_is_zero() -> None:
    cache = _cache()
    assert (cache.nbytes, cache.tokens) == (0, 0)
    for tokens, slabs in [(1, 1), (512, 1), (513, 2), (1500, 3)]:
        cache.reserve(tokens)
        assert cache.nbytes == slabs * SLAB_BYTES
        assert _is_zero_from(cache, 0)


def test_growth_keeps_written_positions() -> None:
    cache = _cache()
    _fill(cache, 500)
    before = cache.read(0, 500)
    cache.reserve(2000)
    assert np.array_equal(cache.read(0, 500), before)
    assert _is_zero_from(cache, 500)


def test_memory_grown_in_a_decode_step_can_be_cut_after_it() -> None:
    cache = _cache()
    _fill(cache, 500)
    with torch.inference_mode():
        _fill(cache, 600)
    cache.truncate(100)
    assert _is_zero_from(cache, 100)
    _fill(cache, 200)
    with torch.inference_mode():
        cache.truncate(50)
    assert _is_zero_from(cache, 50)


def test_truncating_zeroes_dropped_positions_even_a_nan() -> None:
    cache = _cache()
    _fill(cache, 100)
    _fill(cache, 700, float("nan"))
    cache.truncate(100)
    assert _is_zero_from(cache, 100)
    assert cache.tokens == 100


def test_truncating_zeroes_written_positions_that_were_not_committed() -> None:
    cache = _cache()
    _fill(cache, 10)
    cache.reserve(60)
    cache.layer(2)[:, :, 10:60] = float("nan")
    cache.truncate(cache.tokens)
    assert _is_zero_from(cache, 10)


def test_positions_written_are_the_positions_read() -> None:
    cache, other = _cache(), _cache()
    cache.reserve(130)
    for index in range(CONFIG.layers):
        cache.layer(index)[:, :, :130] = torch.randn(2, 2, 130, 16).bfloat16()
    cache.commit(130)
    other.reserve(130)
    for start, stop in [(0, 64), (64, 128), (128, 130)]:
        other.write(start, stop, cache.read(start, stop))
    other.commit(130)
    assert np.array_equal(other.read(0, 130), cache.read(0, 130))
    whole = cache.read(0, 130).view(np.uint16).reshape(3, 2, 2, 130, 16)
    part = cache.read(7, 20).view(np.uint16).reshape(3, 2, 2, 13, 16)
    assert np.array_equal(part, whole[:, :, :, 7:20])


def test_a_refused_growth_changes_nothing() -> None:
    def refuse(grown_bytes: int) -> None:
        raise CacheBudgetExceeded

    cache = _cache(refuse)
    with pytest.raises(CacheBudgetExceeded):
        cache.reserve(5)
    assert cache.nbytes == 0
