"""Small caches, filled with numbers in place of an engine's results."""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from model_host.engine.slab_cache import SlabCache
from model_host.kv.cache import KVCache
from model_host.model_config import ModelConfig

CONFIG = ModelConfig(
    layers=1,
    width=8,
    ffn_width=8,
    heads=1,
    kv_heads=1,
    head_width=4,
    vocab=10,
    context_tokens=4096,
    rope_base=1e4,
    rms_eps=1e-5,
    tied=True,
)
SLAB_BYTES = 512 * 2 * 4 * 4


def small_cache(claim: Callable[[int], None] | None = None) -> SlabCache:
    return SlabCache(CONFIG, torch.float32, claim)


def keys_and_values(ids: Sequence[int]) -> np.ndarray:
    """Return keys and values; each position depends on all tokens up to it."""
    state, rows = 1, []
    for token_id in ids:
        state = (state * 31 + token_id + 1) % 1_000_003
        rows.append([state] * 4)
    return np.array([[rows, rows]], np.float32)  # [L, 2, T, D]


def compute(cache: KVCache, ids: Sequence[int]) -> None:
    """Fill a cache up to the end of `ids`, as a prefill would."""
    start = cache.tokens
    cache.reserve(len(ids))
    pages = keys_and_values(ids)[:, :, start:]
    cache.write(start, len(ids), np.ascontiguousarray(pages).view(np.uint8).flatten())
    cache.commit(len(ids))


def holds(cache: KVCache, ids: Sequence[int]) -> bool:
    """Say whether a cache holds exactly the keys and values of its first tokens of `ids`."""
    pages = np.ascontiguousarray(keys_and_values(ids[: cache.tokens]))
    return np.array_equal(cache.read(0, cache.tokens), pages.view(np.uint8).flatten())
