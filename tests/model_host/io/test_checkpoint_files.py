"""Checkpoints on disk: incremental, verified before use, bounded; failures harm nothing else."""

import os
import threading
from pathlib import Path

import pytest

from model_host.errors import (
    CheckpointCorrupt,
    CheckpointDiskFull,
    CheckpointDropped,
    CheckpointMissing,
    CheckpointTooLarge,
    CheckpointWriteFailed,
)
from model_host.io.files.checkpoint_files import Checkpoints
from model_host.kv.checkpoint import PIECES_MAX
from model_host.kv.memory import Bytes
from tests.model_host.io.damage import flip_at
from tests.model_host.kv.plain_pages import TOKEN_BYTES, PlainPages, filled, restore
from tests.support.files import file_size_limit

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
    return sorted(store._files._root.rglob(f"*{suffix}"))


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


def test_only_tokens_not_yet_stored_are_written(tmp_path: Path) -> None:
    store = _store(tmp_path)
    _save(store, 200)
    assert (store.counters.pieces_written, store.counters.pieces_reused) == (4, 0)
    _save(store, 330)  # three whole groups and 8 tokens are there
    assert (store.counters.pieces_written, store.counters.pieces_reused) == (7, 4)
    _save(store, 330)
    assert (store.counters.pieces_written, store.counters.pieces_reused) == (7, 11)
    (pack,) = _files(store, ".pack")
    assert pack.stat().st_size == 330 * TOKEN_BYTES
    assert store.nbytes == sum(p.stat().st_size for p in tmp_path.rglob("*") if p.is_file())


def test_each_turn_writes_its_own_tokens_alone(tmp_path: Path) -> None:
    store = _store(tmp_path)
    written, before = 0, 0
    turns = [200 + 37 * turn for turn in range(20)]
    ids = list(range(turns[-1]))
    for tokens in turns:
        _save(store, tokens, ids=ids)
        new, written = store.counters.bytes_written - written, store.counters.bytes_written
        (manifest,) = (m for m in store.manifests(b"a") if m.tokens == tokens)
        # A manifest has less than 128 bytes per piece, and a group of 64 tokens few pieces.
        assert 0 < new - (tokens - before) * TOKEN_BYTES < 200 + 128 * len(manifest.pieces)
        assert len(manifest.pieces) <= 3 * (tokens // 64 + 1)
        before = tokens
    (pack,) = _files(store, ".pack")
    assert pack.stat().st_size == turns[-1] * TOKEN_BYTES
    _assert_is_prefix(_restore(store, [*ids, 0]), turns[-1])


def test_turns_of_one_token_write_a_bounded_multiple(tmp_path: Path) -> None:
    store = _store(tmp_path)
    for tokens in range(1, 129):
        _save(store, tokens)
        assert max(len(m.pieces) for m in store.manifests(b"a")) <= 2 * PIECES_MAX
        if tokens % 2 == 0:
            _assert_is_prefix(_restore(store, IDS), tokens)
    size = sum(path.stat().st_size for path in _files(store, ".pack"))
    assert size <= 128 * (1 + 64 // PIECES_MAX) * TOKEN_BYTES


class Paused(PlainPages):
    """Pages whose copying stops at a position, until the test goes on."""

    def __init__(self, tokens: int, at: int) -> None:
        super().__init__(filled(tokens)._rows)
        self.at = at
        self.reached, self.goes_on = threading.Event(), threading.Event()

    def read(self, start: int, stop: int) -> Bytes:
        if start >= self.at:
            self.reached.set()
            assert self.goes_on.wait(10)
        return super().read(start, stop)


def test_a_checkpoint_is_restored_while_another_one_is_written(tmp_path: Path) -> None:
    store = _store(tmp_path)
    _save(store, 128)
    source = Paused(400, 256)
    writing = threading.Thread(
        target=store.save, args=(b"a", NAMESPACE, SEAL, b"", IDS[:400], source)
    )
    writing.start()
    assert source.reached.wait(10)
    _assert_is_prefix(_restore(store, IDS), 128)
    source.goes_on.set()
    writing.join()
    _assert_is_prefix(_restore(store, [*IDS, 1]), 400)


def test_a_checkpoint_that_extends_one_found_broken_meanwhile_is_dropped(tmp_path: Path) -> None:
    store = _store(tmp_path)
    _save(store, 128)
    source, failures = Paused(400, 256), []

    def save() -> None:
        try:
            store.save(b"a", NAMESPACE, SEAL, b"", IDS[:400], source)
        except CheckpointDropped as error:
            failures.append(error)

    writing = threading.Thread(target=save)
    writing.start()
    assert source.reached.wait(10)
    flip_at(_files(store, ".pack")[0], 0)
    with pytest.raises(CheckpointCorrupt):
        _restore(store, IDS)
    source.goes_on.set()
    writing.join()
    assert len(failures) == 1
    assert store.manifests(b"a") == []
    _save(store, 400)
    _assert_is_prefix(_restore(store, [*IDS, 1]), 400)


def test_nothing_of_a_distrusted_namespace_is_used_until_the_next_start(tmp_path: Path) -> None:
    store = _store(tmp_path)
    _save(store, 200)
    store.distrust(NAMESPACE)
    with pytest.raises(CheckpointMissing):
        _restore(store, IDS)
    assert store.save(b"a", NAMESPACE, SEAL, b"", IDS, filled(400)) is None
    (manifest,) = store.manifests(b"a")
    with pytest.raises(CheckpointMissing):
        store.newest(b"a", NAMESPACE)
    with pytest.raises(CheckpointDropped):
        store.add(b"b", manifest, (store.read(b"a", piece) for piece in manifest.pieces))
    assert _store(tmp_path).newest(b"a", NAMESPACE) == manifest
    _assert_is_prefix(_restore(_store(tmp_path), IDS), 200)


def test_a_checkpoint_of_another_host_is_added_whole(tmp_path: Path) -> None:
    one, other = _store(tmp_path / "one"), _store(tmp_path / "other", key=b"other" * 8)
    _save(one, 200)
    _save(other, 130)
    (manifest,) = one.manifests(b"a")
    payloads = [one.read(b"a", piece) for piece in manifest.pieces]
    wrong = [*payloads[:-1], payloads[-1] ^ 1]
    with pytest.raises(CheckpointCorrupt):
        other.add(b"a", manifest, wrong)
    assert [m.tokens for m in other.manifests(b"a")] == [130]
    other.add(b"a", manifest, payloads)
    _assert_is_prefix(_restore(other, IDS), 200)
    small = _store(tmp_path / "small", 100 * TOKEN_BYTES)
    with pytest.raises(CheckpointTooLarge):
        small.add(b"a", manifest, payloads)


def test_branches_share_the_pieces_of_their_common_prefix(tmp_path: Path) -> None:
    store = _store(tmp_path)
    _save(store, 200)
    _save(store, 200, ids=[*IDS[:130], *range(70)])
    assert store.counters.pieces_reused == 2
    _assert_is_prefix(_restore(store, IDS), 200)


def test_restoring_extends_the_context_in_memory(tmp_path: Path) -> None:
    store = _store(tmp_path)
    _save(store, 330)
    for common in (1, 64, 100, 329):
        _assert_is_prefix(restore(store, b"a", NAMESPACE, IDS, filled(common)), 330)
    with pytest.raises(CheckpointMissing):
        store.find(b"a", NAMESPACE, IDS, 330)


@pytest.mark.parametrize("damage", ["first", "last", "cut", "gone"])
def test_damaged_bytes_are_refused_once_and_removed(tmp_path: Path, damage: str) -> None:
    store = _store(tmp_path)
    _save(store, 200)
    (path,) = _files(store, ".pack")
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
        for path in store._files.folder(name).glob("*.manifest"):
            os.utime(path, (1000 - at, 1000 - at))
    _save(_store(tmp_path, 2 * 70 * TOKEN_BYTES + 1000), 70, b"c")
    assert [len(store.manifests(name)) for name in (b"a", b"b", b"c")] == [1, 0, 1]


def test_a_budget_that_was_lowered_holds_from_the_start_on(tmp_path: Path) -> None:
    store = _store(tmp_path)
    for at, name in enumerate((b"a", b"b")):
        _save(store, 70, name)
        for path in store._files.folder(name).glob("*.manifest"):
            os.utime(path, (1000 - at, 1000 - at))
    lower = _store(tmp_path, 100 * TOKEN_BYTES)
    assert [len(lower.manifests(name)) for name in (b"a", b"b")] == [1, 0]
    assert lower.counters.evicted_conversations == 1
    assert _store(tmp_path, 0).nbytes == 0


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


def test_a_refused_write_leaves_the_old_checkpoints_and_nothing_new(tmp_path: Path) -> None:
    store = _store(tmp_path)
    _save(store, 128)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    # In the middle of the second new group.
    limit = (128 + 90) * TOKEN_BYTES
    with file_size_limit(limit), pytest.raises(CheckpointDiskFull) as caught:
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
    with file_size_limit(200 * TOKEN_BYTES), pytest.raises(CheckpointDiskFull):
        _save(store, 330)
    with file_size_limit(90 * TOKEN_BYTES), pytest.raises(CheckpointDiskFull):
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
    folder = store._files.folder(b"a")

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
    folder = store._files.folder(b"a")
    copy = folder.rename(tmp_path.parent / f"{tmp_path.name}-copy")
    store.delete(b"a")
    copy.rename(folder)
    _assert_is_prefix(_restore(store, IDS), 128)


def test_a_full_device_is_a_typed_error(tmp_path: Path) -> None:
    store = _store(tmp_path)
    folder = store._files.folder(b"a")
    folder.mkdir()
    (folder / "00000000.pack").symlink_to("/dev/full")
    with pytest.raises(CheckpointDiskFull):
        _save(store, 128)
    assert not _files(store, ".manifest")


def test_a_folder_that_cannot_be_created_is_a_typed_error(tmp_path: Path) -> None:
    store = _store(tmp_path)
    store._files.folder(b"a").write_bytes(b"in the way")
    with pytest.raises(CheckpointWriteFailed):
        _save(store, 128)


def test_files_are_private(tmp_path: Path) -> None:
    store = _store(tmp_path / "deep" / "root")
    _save(store, 70)
    found = [*(tmp_path / "deep" / "root").rglob("*")]
    assert {path.suffix for path in found} >= {".pack", ".manifest"}
    assert [path for path in found if path.stat().st_mode & 0o077] == []


def test_without_tokens_nothing_is_saved(tmp_path: Path) -> None:
    store = _store(tmp_path)
    assert store.save(b"a", NAMESPACE, SEAL, b"", [], filled(5)) is None
