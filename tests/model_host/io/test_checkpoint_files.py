"""Checkpoints on disk: incremental, verified before use, bounded; failures harm nothing else."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from model_host.errors import (
    CheckpointCorrupt,
    CheckpointDiskFull,
    CheckpointMissing,
    CheckpointTooLarge,
    CheckpointWriteFailed,
)
from model_host.io.checkpoint_files import Checkpoints
from tests.model_host.io.damage import flip_at
from tests.model_host.kv.plain_pages import TOKEN_BYTES, PlainPages, filled, restore

KEY, NAMESPACE, SEAL = b"k" * 32, b"n" * 32, b"s" * 32
IDS = list(range(1000, 1400))


def _store(root: Path, budget_bytes: int = 1 << 24, key: bytes = KEY) -> Checkpoints:
    return Checkpoints(root, mac_key=key, budget_bytes=budget_bytes)


def _save(store: Checkpoints, tokens: int, name: bytes = b"a", ids: list[int] = IDS) -> None:
    store.save(name, NAMESPACE, SEAL, b"", ids[:tokens], filled(tokens))


def _restore(store: Checkpoints, ids: list[int], name: bytes = b"a") -> PlainPages:
    return restore(store, name, NAMESPACE, ids)


def _assert_is_prefix(pages: PlainPages, tokens: int) -> None:
    assert pages == filled(tokens)


def _files(store: Checkpoints, suffix: str) -> list[Path]:
    return sorted(store._root.rglob(f"*{suffix}"))


def test_a_saved_checkpoint_is_restored_also_by_the_next_process(tmp_path: Path) -> None:
    store = _store(tmp_path)
    _save(store, 200)
    _assert_is_prefix(_restore(store, IDS), 200)
    _assert_is_prefix(_restore(_store(tmp_path), IDS), 200)
    (made,) = store.manifests(b"a")
    assert (made.seal, made.generation, made.tokens) == (SEAL, b"", 200)


def test_one_token_is_always_left_to_compute(tmp_path: Path) -> None:
    store = _store(tmp_path)
    _save(store, 200)
    _assert_is_prefix(_restore(store, IDS[:201]), 200)
    _assert_is_prefix(_restore(store, IDS[:200]), 192)  # whole groups of 64
    _assert_is_prefix(_restore(store, IDS[:192]), 128)
    with pytest.raises(CheckpointMissing):
        _restore(store, IDS[:64])


def test_a_prefix_in_common_is_restored(tmp_path: Path) -> None:
    store = _store(tmp_path)
    _save(store, 200)
    _assert_is_prefix(_restore(store, [*IDS[:150], 1, 2, 3]), 128)
    with pytest.raises(CheckpointMissing):
        _restore(store, [7, *IDS])


def test_the_longest_checkpoint_is_restored(tmp_path: Path) -> None:
    store = _store(tmp_path)
    for tokens in (70, 330, 200):
        _save(store, tokens)
    _assert_is_prefix(_restore(store, IDS), 330)
    _assert_is_prefix(_restore(store, [*IDS[:230], 1]), 200)
    _assert_is_prefix(_restore(store, [*IDS[:100], 1]), 70)


def test_only_groups_not_yet_stored_are_written(tmp_path: Path) -> None:
    store = _store(tmp_path)
    _save(store, 200)
    assert (store.counters.groups_written, store.counters.groups_reused) == (4, 0)
    _save(store, 330)  # three whole groups are there; two more and a tail
    assert (store.counters.groups_written, store.counters.groups_reused) == (7, 3)
    _save(store, 330)
    assert (store.counters.groups_written, store.counters.groups_reused) == (7, 9)
    (pack,) = _files(store, ".pack")
    assert pack.stat().st_size == 5 * 64 * TOKEN_BYTES
    assert [p.stat().st_size for p in _files(store, ".tail")] == [8 * TOKEN_BYTES, 10 * TOKEN_BYTES]
    assert store.nbytes == sum(p.stat().st_size for p in tmp_path.rglob("*") if p.is_file())


def test_branches_share_the_groups_of_their_common_prefix(tmp_path: Path) -> None:
    store = _store(tmp_path)
    _save(store, 200)
    _save(store, 200, ids=[*IDS[:130], *range(70)])
    assert store.counters.groups_reused == 2
    _assert_is_prefix(_restore(store, IDS), 200)


def test_restoring_extends_the_context_in_memory(tmp_path: Path) -> None:
    store = _store(tmp_path)
    _save(store, 330)
    for common in (1, 64, 100, 329):
        _assert_is_prefix(restore(store, b"a", NAMESPACE, IDS, filled(common)), 330)
    with pytest.raises(CheckpointMissing):
        store.find(b"a", NAMESPACE, IDS, 330)


@pytest.mark.parametrize("suffix", [".pack", ".tail"])
@pytest.mark.parametrize("damage", ["first", "last", "cut", "gone"])
def test_damaged_bytes_are_refused_once_and_removed(
    tmp_path: Path, suffix: str, damage: str
) -> None:
    store = _store(tmp_path)
    _save(store, 200)
    (path,) = _files(store, suffix)
    match damage:
        case "first":
            flip_at(path, 0)
        case "last":
            flip_at(path, -1)
        case "cut":
            path.write_bytes(path.read_bytes()[:-1])
        case "gone":
            path.unlink()
    with pytest.raises(CheckpointCorrupt):
        restore(store, b"a", NAMESPACE, IDS, filled(10))
    assert store.counters.corrupt == 1
    with pytest.raises(CheckpointMissing):
        _restore(store, IDS)
    _save(store, 200)
    _assert_is_prefix(_restore(store, IDS), 200)


def test_a_damaged_manifest_is_refused_and_removed(tmp_path: Path) -> None:
    store = _store(tmp_path)
    _save(store, 200)
    flip_at(_files(store, ".manifest")[0], 60)
    with pytest.raises(CheckpointCorrupt):
        _restore(store, IDS)
    assert not _files(store, ".manifest")


def test_a_damaged_manifest_does_not_hide_an_older_checkpoint(tmp_path: Path) -> None:
    store = _store(tmp_path)
    _save(store, 128)
    _save(store, 200)
    flip_at(_files(store, ".manifest")[1], -1)
    _assert_is_prefix(_restore(store, IDS), 128)
    assert store.counters.corrupt == 1


def test_checkpoints_of_another_key_are_refused(tmp_path: Path) -> None:
    _save(_store(tmp_path, key=b"other" * 8), 200)
    with pytest.raises(CheckpointCorrupt):
        _restore(_store(tmp_path), IDS)


def test_checkpoints_of_another_namespace_are_not_found(tmp_path: Path) -> None:
    store = _store(tmp_path)
    _save(store, 200)
    with pytest.raises(CheckpointMissing):
        store.find(b"a", b"m" * 32, IDS)


def test_conversations_do_not_see_each_other(tmp_path: Path) -> None:
    store = _store(tmp_path)
    _save(store, 200)
    with pytest.raises(CheckpointMissing):
        _restore(store, IDS, b"b")
    _save(store, 64, b"b")
    store.delete(b"a")
    with pytest.raises(CheckpointMissing):
        _restore(store, IDS)
    _assert_is_prefix(_restore(store, IDS, b"b"), 64)


def test_the_least_recently_used_conversation_is_evicted_first(tmp_path: Path) -> None:
    store = _store(tmp_path, 3 * 70 * TOKEN_BYTES + 3 * 600)
    for name in (b"a", b"b", b"c"):
        _save(store, 70, name)
    _restore(store, IDS, b"a")
    _save(store, 70, b"d")
    assert [len(store.manifests(name)) for name in (b"a", b"b", b"c", b"d")] == [1, 0, 1, 1]
    assert store.counters.evicted_conversations == 1
    assert store.nbytes <= 3 * 70 * TOKEN_BYTES + 3 * 600


def test_the_order_of_use_survives_a_restart(tmp_path: Path) -> None:
    store = _store(tmp_path)
    for at, name in enumerate((b"a", b"b")):
        _save(store, 70, name)
        for path in store._folder(name).glob("*.manifest"):
            os.utime(path, (1000 - at, 1000 - at))
    _save(_store(tmp_path, 2 * 70 * TOKEN_BYTES + 1000), 70, b"c")
    assert [len(store.manifests(name)) for name in (b"a", b"b", b"c")] == [1, 0, 1]


def test_a_checkpoint_larger_than_the_budget_is_refused(tmp_path: Path) -> None:
    store = _store(tmp_path, 100 * TOKEN_BYTES)
    _save(store, 64)
    with pytest.raises(CheckpointTooLarge):
        _save(store, 200)
    _assert_is_prefix(_restore(store, IDS), 64)


def test_a_conversation_with_many_branches_starts_anew_within_the_budget(tmp_path: Path) -> None:
    store = _store(tmp_path, 300 * TOKEN_BYTES)
    for branch in range(6):
        _save(store, 128, ids=[branch, *IDS])
        assert store.nbytes <= 300 * TOKEN_BYTES
    assert store.counters.evicted_conversations == 0
    _restore(store, [5, *IDS])


@contextmanager
def _file_size_limit(size: int) -> Iterator[None]:
    """Let the kernel refuse to grow any file beyond `size` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_refused_write_leaves_the_old_checkpoints_and_nothing_new(tmp_path: Path) -> None:
    store = _store(tmp_path)
    _save(store, 128)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    # In the middle of the second new group.
    limit = (128 + 90) * TOKEN_BYTES
    with _file_size_limit(limit), pytest.raises(CheckpointDiskFull) as caught:
        _save(store, 330)
    assert caught.value.retryable
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before
    _assert_is_prefix(_restore(store, IDS), 128)
    _save(store, 330)
    _assert_is_prefix(_restore(store, IDS), 330)


def test_a_failed_write_evicts_no_other_checkpoint(tmp_path: Path) -> None:
    store = _store(tmp_path, 400 * TOKEN_BYTES)
    _save(store, 128, b"b")
    _save(store, 128)
    # Both must be evicted, but only once the new checkpoint is complete.
    with _file_size_limit(200 * TOKEN_BYTES), pytest.raises(CheckpointDiskFull):
        _save(store, 330)
    with _file_size_limit(90 * TOKEN_BYTES), pytest.raises(CheckpointDiskFull):
        _save(store, 330, ids=[0, *IDS])
    _assert_is_prefix(_restore(store, IDS), 128)
    _assert_is_prefix(_restore(store, IDS, b"b"), 128)
    assert store.counters.evicted_conversations == 0
    _save(store, 330, ids=[0, *IDS])
    assert store.nbytes <= 400 * TOKEN_BYTES
    assert [len(store.manifests(name)) for name in (b"a", b"b")] == [1, 0]


def test_unknown_files_in_the_folder_are_ignored(tmp_path: Path) -> None:
    store = _store(tmp_path)
    _save(store, 128)
    folder = store._folder(b"a")

    def clutter() -> None:
        (folder / "dangling.manifest").symlink_to(tmp_path / "nowhere")
        (folder / "folder.manifest").mkdir()
        (folder / "folder.manifest" / "file").write_bytes(b"x")
        (folder / "stray.pack").write_bytes(b"x")
        (folder / "dangling").symlink_to(tmp_path / "nowhere")

    clutter()
    _assert_is_prefix(_restore(store, IDS), 128)
    clutter_left = {path.name for path in folder.iterdir()}
    assert clutter_left == {"00000000.pack", *(p.name for p in _files(store, ".manifest"))} | {
        "stray.pack",
        "dangling",
    }
    for path in folder.glob("*dangling"):
        path.unlink()
    (folder / "stray.pack").unlink()
    clutter()
    again = _store(tmp_path)
    _save(again, 330)
    _assert_is_prefix(_restore(again, IDS), 330)
    assert not {path.name for path in folder.iterdir()} & {"stray.pack", "dangling"}


def test_a_folder_put_back_by_hand_is_used(tmp_path: Path) -> None:
    store = _store(tmp_path)
    _save(store, 128)
    folder = store._folder(b"a")
    copy = folder.rename(tmp_path.parent / f"{tmp_path.name}-copy")
    store.delete(b"a")
    copy.rename(folder)
    _assert_is_prefix(_restore(store, IDS), 128)


def test_a_full_device_is_a_typed_error(tmp_path: Path) -> None:
    store = _store(tmp_path)
    folder = store._folder(b"a")
    folder.mkdir()
    (folder / "00000000.pack").symlink_to("/dev/full")
    with pytest.raises(CheckpointDiskFull):
        _save(store, 128)
    assert not _files(store, ".manifest")


def test_a_folder_that_cannot_be_created_is_a_typed_error(tmp_path: Path) -> None:
    store = _store(tmp_path)
    store._folder(b"a").write_bytes(b"in the way")
    with pytest.raises(CheckpointWriteFailed):
        _save(store, 128)


def test_files_are_private(tmp_path: Path) -> None:
    store = _store(tmp_path / "deep" / "root")
    _save(store, 70)
    for path in (tmp_path / "deep" / "root").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0


def test_without_tokens_nothing_is_saved(tmp_path: Path) -> None:
    store = _store(tmp_path)
    assert store.save(b"a", NAMESPACE, SEAL, b"", [], filled(5)) is None
