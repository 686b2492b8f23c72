"""The contract of any PageStore, and the one on disk against a naive twin."""

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from model_host.engine.torch_engine import TorchEngine
from model_host.errors import CheckpointMissing
from model_host.io.checkpoint_files import Checkpoints
from model_host.io.worker import Found, Worker
from model_host.kv.cache import KVCache
from model_host.kv.page_store import PageStore
from model_host.kv.pool import CachePool
from model_host.prefill import Cancellation
from replica.ids import ConversationId, EntryId
from tests.model_host.kv.computed import compute, holds, small_cache
from tests.model_host.kv.naive_pages import NaivePages

NAMESPACE, SEAL, NONE = b"n" * 32, b"s" * 32, b""
Make = Callable[[Path], PageStore]


def on_disk(folder: Path) -> PageStore:
    return Checkpoints(folder, mac_key=b"k" * 32, budget_bytes=1 << 30)


def in_memory(_folder: Path) -> PageStore:
    return NaivePages()


STORES = pytest.mark.parametrize("make", [on_disk, in_memory], ids=["files", "naive"])


def computed(ids: list[int]) -> KVCache:
    cache = small_cache()
    compute(cache, ids)
    return cache


def restored(store: PageStore, ids: list[int], conversation: bytes = b"a", common: int = 0) -> int:
    """Restore on top of `common` tokens in memory; return the tokens, 0 for none."""
    cache = computed(ids[:common]) if common else small_cache()
    try:
        tokens = store.restore(conversation, NAMESPACE, ids, cache, common)
    except CheckpointMissing:
        tokens = 0
        assert cache.tokens == common
    else:
        assert cache.tokens == tokens
    assert holds(cache, ids)
    return tokens


@STORES
def test_a_saved_context_is_restored_but_for_the_last_token(make: Make, tmp_path: Path) -> None:
    store, ids = make(tmp_path), list(range(200))
    assert store.save(b"a", NAMESPACE, SEAL, NONE, [], small_cache()) is None
    made = store.save(b"a", NAMESPACE, SEAL, NONE, ids, computed(ids))
    assert made is not None
    assert (made.tokens, made.seal, made.namespace) == (200, SEAL, NAMESPACE)
    assert restored(store, [*ids, 7]) == 200
    assert restored(store, ids) == 192
    assert restored(store, [*ids, 7], common=150) == 200
    assert restored(store, [*ids, 7], common=200) == 0
    assert store.nbytes > 0


@STORES
def test_nothing_is_found_elsewhere_or_after_deletion(make: Make, tmp_path: Path) -> None:
    store, ids = make(tmp_path), list(range(200))
    store.save(b"a", NAMESPACE, SEAL, NONE, ids, computed(ids))
    assert restored(store, ids, b"b") == 0
    with pytest.raises(CheckpointMissing):
        store.restore(b"a", b"m" * 32, ids, small_cache())
    assert [m.tokens for m in store.manifests(b"a")] == [200]
    store.delete(b"a")
    assert store.manifests(b"a") == []
    assert restored(store, ids) == 0
    store.delete(b"never there")


def test_the_files_find_the_same_as_the_twin(tmp_path: Path) -> None:
    rng = random.Random(6)
    files, naive = on_disk(tmp_path), in_memory(tmp_path)
    known: list[list[int]] = [[]]
    for _ in range(25):
        past = rng.choice(known)
        ids = [*past[: rng.randrange(len(past) + 1)], *(rng.randrange(9) for _ in range(70))]
        common = rng.choice((0, 0, rng.randrange(len(ids))))
        found = [restored(store, ids, common=common) for store in (files, naive)]
        assert found[0] == found[1]
        for store in (files, naive):
            store.save(b"a", NAMESPACE, SEAL, NONE, ids, computed(ids))
        known.append(ids)


@STORES
async def test_a_worker_restores_from_any_store(
    make: Make, tmp_path: Path, tiny: TorchEngine
) -> None:
    store, conversation = make(tmp_path), ConversationId(b"c" * 32)
    ids = np.random.default_rng(1).integers(4, tiny.config.vocab, 300).tolist()
    logits = []
    for expected in (Found(0, 0), Found(0, 299 // 64 * 64)):
        pool = CachePool(tiny.new_cache, 1 << 30)
        worker = Worker(tiny, pool, store, lambda owner: owner)
        async with worker.holding(conversation) as hold:
            prefilled = await worker.prefill(
                hold, b"o", ids, on_progress=lambda *_: None, cancellation=Cancellation()
            )
        assert prefilled.found == expected
        logits.append(prefilled.logits)
        none = EntryId(bytes(32))
        await worker.checkpoint(conversation, b"o", none, none, ids)
        assert worker.counters.checkpoints == 1
        await worker.close()
    assert np.array_equal(*logits)
