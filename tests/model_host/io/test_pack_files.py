"""Files of checkpoints that are no files."""

import os
import tracemalloc
from pathlib import Path

import pytest

from model_host.errors import CheckpointCorrupt, CheckpointMissing, CheckpointWriteFailed
from model_host.io.files import pack_files
from model_host.io.files.checkpoint_files import Checkpoints
from model_host.kv import MANIFEST_BYTES_MAX
from tests.model_host.kv.plain_pages import filled, restore

IDS = list(range(1000, 1400))


def test_a_pipe_is_empty_to_read_and_refused_to_write_to(tmp_path: Path) -> None:
    path = tmp_path / "00000000.pack"
    os.mkfifo(path)
    assert pack_files.read_first(path, 64) == b""
    with pytest.raises(OSError, match="No such device"):
        pack_files.open_file(path, "a")


def test_a_device_is_empty_to_read(tmp_path: Path) -> None:
    path = tmp_path / "a.manifest"
    path.symlink_to("/dev/zero")
    assert pack_files.read_first(path, 64) == b""


def test_a_file_that_is_longer_than_allowed_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.manifest"
    path.write_bytes(b"abc")
    os.truncate(path, 8 << 30)  # of zeros, which take no room on the disk
    assert pack_files.read_first(path, 5) == b"abc\0\0"
    os.truncate(path, 2)
    assert pack_files.read_first(path, 5) == b"ab"


def test_a_manifest_that_is_too_long_is_removed_within_bounds_of_memory(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path, mac_key=b"k" * 32, budget_bytes=1 << 24)
    store.save(b"a", b"n" * 32, b"s" * 32, b"", IDS, filled(400))
    (path,) = tmp_path.rglob("*.manifest")
    os.truncate(path, 1 << 30)
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointCorrupt):
            restore(store, b"a", b"n" * 32, IDS)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * MANIFEST_BYTES_MAX
    assert not path.exists()


@pytest.mark.parametrize("suffix", [".pack", ".manifest"])
def test_a_pipe_in_place_of_a_file_is_a_broken_file(tmp_path: Path, suffix: str) -> None:
    store = Checkpoints(tmp_path, mac_key=b"k" * 32, budget_bytes=1 << 24)

    def save(tokens: int) -> None:
        store.save(b"a", b"n" * 32, b"s" * 32, b"", IDS[:tokens], filled(tokens))

    save(128)
    (path,) = tmp_path.rglob(f"*{suffix}")
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(CheckpointCorrupt):
        restore(store, b"a", b"n" * 32, IDS)
    with pytest.raises(CheckpointMissing):
        restore(store, b"a", b"n" * 32, IDS)
    save(200)
    assert restore(store, b"a", b"n" * 32, IDS) == filled(200)


def test_a_failed_write_names_its_path_to_the_operator_and_to_no_peer(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path / "root", mac_key=b"k" * 32, budget_bytes=1 << 24)
    (tmp_path / "root").rmdir()
    (tmp_path / "root").write_text("in the way")
    with pytest.raises(CheckpointWriteFailed, match=str(tmp_path)) as caught:
        store.save(b"a", b"n" * 32, b"s" * 32, b"", IDS, filled(400))
    assert str(tmp_path) not in caught.value.for_peer().detail
