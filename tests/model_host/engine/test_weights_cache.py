"""The cache of converted weights stays within its budget, and loses no file in use."""

import logging
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from model_host.engine import weights_cache
from model_host.engine.weights_cache import CacheFile, InUse, WeightsCache, to_evict

SIZE = 4096
TENSORS = {"t": torch.arange(SIZE // 4, dtype=torch.float32)}
FILE = SIZE + 64 * 2  # with its header


def names(files: list[CacheFile] | None) -> list[str] | None:
    return None if files is None else [file.name for file in files]


def used(cache: Path) -> list[str]:
    return sorted(path.stem for path in (cache / "weights").iterdir())


def write(cache: WeightsCache, folder: Path, key: str, used_at: int) -> None:
    """Write a file that is not in use, last used at a time."""
    assert cache.write(key, TENSORS) is not None
    os.utime(folder / "weights" / f"{key}.weights", (used_at, used_at))


def test_the_least_recently_used_files_make_room() -> None:
    files = [CacheFile("b", 10, 2.0), CacheFile("a", 10, 1.0), CacheFile("c", 10, 3.0)]
    assert names(to_evict(files, 10, 40)) == []
    assert names(to_evict(files, 10, 39)) == ["a"]
    assert names(to_evict(files, 30, 40)) == ["a", "b"]
    assert names(to_evict(files, 40, 40)) == ["a", "b", "c"]


def test_a_file_larger_than_the_budget_evicts_nothing() -> None:
    assert to_evict([CacheFile("a", 10, 1.0)], 41, 40) is None


def test_the_cache_stays_within_its_budget(tmp_path: Path) -> None:
    cache = WeightsCache(tmp_path, 2 * FILE)
    for used_at, key in enumerate(("one", "two", "three"), start=1):
        write(cache, tmp_path, key, used_at)
    assert used(tmp_path) == ["three", "two"]


def test_the_reserve_of_the_disk_stays_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    total = 100 * FILE

    def usage(folder: Path) -> SimpleNamespace:
        taken = sum(path.stat().st_size for path in folder.iterdir()) + 87 * FILE
        return SimpleNamespace(total=total, free=total - taken)

    monkeypatch.setattr(weights_cache.shutil, "disk_usage", usage)
    cache = WeightsCache(tmp_path)
    for used_at, key in enumerate(("one", "two", "three", "four"), start=1):
        write(cache, tmp_path, key, used_at)
    assert used(tmp_path) == ["four", "three", "two"]


def test_reading_a_file_is_a_use_of_it(tmp_path: Path) -> None:
    cache = WeightsCache(tmp_path, 2 * FILE)
    write(cache, tmp_path, "one", 1)
    write(cache, tmp_path, "two", 2)
    found = cache.read("one")
    assert found is not None
    assert torch.equal(found[0]["t"], TENSORS["t"])
    del found
    write(cache, tmp_path, "three", 3)
    assert used(tmp_path) == ["one", "three"]


def test_a_file_with_a_changed_bit_before_its_tensors_is_not_used(tmp_path: Path) -> None:
    """The digest does not cover the header's length, which says where the tensors begin."""
    cache = WeightsCache(tmp_path)
    write(cache, tmp_path, "one", 1)
    path = tmp_path / "weights" / "one.weights"
    whole = path.read_bytes()
    for bit in range(8 * (len(whole) - SIZE)):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        assert cache.read("one") is None, f"bit {bit}"
    path.write_bytes(whole)
    assert cache.read("one") is not None


def test_a_file_in_use_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = WeightsCache(tmp_path, 2 * FILE)
    write(cache, tmp_path, "one", 1)
    write(cache, tmp_path, "two", 2)
    # The lock is that of a process; this one is taken through a description of its own.
    in_use = InUse(tmp_path / "weights" / "one.weights")
    write(cache, tmp_path, "three", 3)
    assert used(tmp_path) == ["one", "three"]
    again = InUse(tmp_path / "weights" / "three.weights")
    with caplog.at_level(logging.WARNING):
        assert cache.write("four", TENSORS) is None
    assert "weights cache full" in caplog.text
    assert used(tmp_path) == ["one", "three"]
    del in_use, again
    assert cache.write("four", TENSORS) is not None


def test_a_file_that_another_process_uses_stays(tmp_path: Path) -> None:
    cache = WeightsCache(tmp_path, FILE)
    write(cache, tmp_path, "one", 1)
    path = tmp_path / "weights" / "one.weights"
    program = "import fcntl, sys; f = open(sys.argv[1], 'rb'); fcntl.flock(f, fcntl.LOCK_SH)"
    program += "; print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        assert cache.write("two", TENSORS) is None
        other.communicate()
    assert cache.write("two", TENSORS) is not None
    assert used(tmp_path) == ["two"]


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    cache = WeightsCache(tmp_path, 2 * FILE)
    write(cache, tmp_path, "one", 1)
    (tmp_path / "weights" / "half.tmp").write_bytes(b"half")
    write(cache, tmp_path, "two", 2)
    assert used(tmp_path) == ["one", "two"]


def test_what_is_no_file_stays_and_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "weights"
    strange = [folder / name for name in ("junk.weights", "x.tmp", "pipe.weights", "loop.weights")]
    for path in strange[:2]:
        path.mkdir(parents=True)
    os.mkfifo(strange[2])
    strange[3].symlink_to(strange[3].name)
    cache = WeightsCache(tmp_path, 2 * FILE)
    with caplog.at_level(logging.WARNING):
        for used_at, key in enumerate(("one", "two", "three"), start=1):
            write(cache, tmp_path, key, used_at)
    assert used(tmp_path) == ["junk", "loop", "pipe", "three", "two", "x"]
    skipped = {record.__dict__["path"] for record in caplog.records}
    assert skipped == {*strange}
