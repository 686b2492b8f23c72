"""The contract of any PageStore, and the one on disk against a naive twin."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from model_host.errors import CheckpointMissing
from model_host.io.files.checkpoint_files import Checkpoints
from model_host.kv.page_store import PageStore
from tests.model_host.kv.naive_pages import NaivePages
from tests.model_host.kv.plain_pages import PlainPages, computed, restore

NAMESPACE, SEAL, NONE = b"n" * 32, b"s" * 32, b""
Make = Callable[[Path], PageStore]


def on_disk(folder: Path) -> PageStore:
    return Checkpoints(folder, mac_key=b"k" * 32, budget_bytes=1 << 30)


def in_memory(_folder: Path) -> PageStore:
    return NaivePages()


STORES = pytest.mark.parametrize("make", [on_disk, in_memory], ids=["files", "naive"])


def restored(store: PageStore, ids: list[int], conversation: bytes = b"a", common: int = 0) -> int:
    """Restore on top of `common` tokens in memory; return the tokens, 0 for none."""
    try:
        pages = restore(store, conversation, NAMESPACE, ids, computed(ids[:common]))
    except CheckpointMissing:
        return 0
    assert pages == computed(ids[: pages.tokens])
    return pages.tokens


@STORES
def test_a_saved_context_is_restored_but_for_the_last_token(make: Make, tmp_path: Path) -> None:
    store, ids = make(tmp_path), list(range(200))
    assert store.save(b"a", NAMESPACE, SEAL, NONE, [], PlainPages()) is None
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
        store.find(b"a", b"m" * 32, ids)
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
