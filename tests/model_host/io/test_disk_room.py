"""Checkpoints on a disk that is nearly full: they leave its reserve free, and make room."""

import shutil
from pathlib import Path

import pytest

from model_host.disk_reserve import spare_bytes
from model_host.errors import CheckpointDiskFull
from model_host.io.files import manifest_files
from model_host.io.files.archive_files import append_to_archive, unnamed_file
from model_host.io.files.checkpoint_files import Checkpoints
from model_host.io.files.manifest_files import spare_at
from replica.refusals import StoreFull
from tests.model_host.kv.plain_pages import TOKEN_BYTES, PlainPages, filled, restore
from tests.support.modes import bound_by_modes, mode

NAMESPACE, SEAL = b"n" * 32, b"s" * 32
IDS = list(range(1000, 1400))
SAVED_BYTES = 70 * TOKEN_BYTES + 700
"""About the bytes of a checkpoint of 70 tokens, with its manifest."""


class Disk:
    """A disk of some bytes, of which others than checkpoints use a part."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.used_by_log = 0

    def __call__(self, folder: Path) -> int:
        files = (path for path in folder.rglob("*") if path.is_file())
        return self.nbytes - self.used_by_log - sum(path.stat().st_size for path in files)


def store_on(root: Path, disk: Disk) -> Checkpoints:
    return Checkpoints(root, mac_key=b"k" * 32, budget_bytes=1 << 24, spare=disk)


def save(store: Checkpoints, name: bytes, tokens: int = 70) -> None:
    store.save(name, NAMESPACE, SEAL, b"", IDS[:tokens], filled(tokens))


def kept(store: Checkpoints, *names: bytes) -> list[int]:
    return [len(store.manifests(name)) for name in names]


def test_the_least_recently_used_makes_room_where_the_disk_and_not_the_budget_ends(
    tmp_path: Path,
) -> None:
    disk = Disk(3 * SAVED_BYTES)
    store = store_on(tmp_path, disk)
    for name in (b"a", b"b", b"c"):
        save(store, name)
    restore(store, b"a", NAMESPACE, IDS)
    save(store, b"d")
    assert kept(store, b"a", b"b", b"c", b"d") == [1, 0, 1, 1]
    assert store.counters.evicted_conversations == 1
    assert disk(tmp_path) >= 0


def test_what_does_not_fit_is_not_written_and_evicts_nothing(tmp_path: Path) -> None:
    store = store_on(tmp_path, Disk(2 * SAVED_BYTES))
    save(store, b"a")
    save(store, b"b")
    with pytest.raises(CheckpointDiskFull, match="stays free for the log"):
        save(store, b"c", 300)
    assert kept(store, b"a", b"b", b"c") == [1, 1, 0]
    assert store.counters.pieces_written == 4


def test_a_conversation_that_grows_keeps_what_it_extends(tmp_path: Path) -> None:
    store = store_on(tmp_path, Disk(2 * SAVED_BYTES))
    save(store, b"a")
    save(store, b"b")
    save(store, b"a", 130)
    assert kept(store, b"a", b"b") == [2, 0]
    assert restore(store, b"a", NAMESPACE, IDS) == filled(130)


def test_a_log_that_grows_takes_the_place_of_checkpoints(tmp_path: Path) -> None:
    disk = Disk(3 * SAVED_BYTES)
    store = store_on(tmp_path, disk)
    for name in (b"a", b"b", b"c"):
        save(store, name)
    disk.used_by_log = 2 * SAVED_BYTES
    store.make_room()
    assert kept(store, b"a", b"b", b"c") == [0, 0, 1]
    disk.used_by_log = 4 * SAVED_BYTES
    with pytest.raises(CheckpointDiskFull):
        store.make_room()
    assert store.nbytes == 0


def test_a_full_disk_takes_a_checkpoint_whatever_it_says_is_free(tmp_path: Path) -> None:
    store = store_on(tmp_path, Disk(1 << 30))  # as with a quota of the user
    save(store, b"a")
    save(store, b"b")
    store.make_room()
    assert kept(store, b"a", b"b") == [1, 1]
    store.make_room(is_full=True)
    assert kept(store, b"a", b"b") == [0, 1]


def test_room_is_made_beside_a_conversation(tmp_path: Path) -> None:
    store = store_on(tmp_path, Disk(2 * SAVED_BYTES))
    save(store, b"a")
    save(store, b"b")
    store.make_room(SAVED_BYTES, beside=b"a")
    assert kept(store, b"a", b"b") == [1, 0]


class FillsTheDisk(PlainPages):
    """Pages that are read while a log grows."""

    def __init__(self, disk: Disk, store: Checkpoints) -> None:
        super().__init__(filled(300)._rows)
        self._disk = disk
        self._store = store

    def read(self, start: int, stop: int):
        if start:
            self._disk.used_by_log = self._disk.nbytes - 2 * SAVED_BYTES
            self._store.make_room()  # what the host does meanwhile
        return super().read(start, stop)


def test_a_disk_that_fills_during_a_write_ends_it_and_nothing_of_it_stays(tmp_path: Path) -> None:
    disk = Disk(1 << 20)
    store = store_on(tmp_path, disk)
    save(store, b"a")
    save(store, b"b")
    pages = FillsTheDisk(disk, store)
    with pytest.raises(CheckpointDiskFull):
        store.save(b"a", NAMESPACE, SEAL, b"", IDS[:300], pages)
    assert restore(store, b"a", NAMESPACE, IDS) == filled(70)
    assert kept(store, b"a", b"b") == [1, 0]


def test_the_spare_bytes_of_a_missing_folder_are_those_of_its_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []

    class Usage:
        total, free = 1000, 150

    def usage(folder: Path) -> type[Usage]:
        looks.append(folder)
        if not folder.exists():
            raise FileNotFoundError
        return Usage

    monkeypatch.setattr(manifest_files.shutil, "disk_usage", usage)
    assert spare_at(tmp_path / "a" / "b") == spare_bytes(1000, 150) == 50
    assert looks == [tmp_path / "a" / "b", tmp_path / "a", tmp_path]


async def test_an_archive_on_its_way_takes_the_place_of_checkpoints_but_not_the_reserve(
    tmp_path: Path,
) -> None:
    disk = Disk(2 * SAVED_BYTES)
    store = store_on(tmp_path / "checkpoints", disk)
    save(store, b"a")
    save(store, b"b")
    with unnamed_file(tmp_path) as file:
        await append_to_archive(file, store, bytes(SAVED_BYTES))
        assert kept(store, b"a", b"b") == [0, 1]
        disk.used_by_log = 2 * SAVED_BYTES
        with pytest.raises(StoreFull):
            await append_to_archive(file, store, bytes(SAVED_BYTES))
        assert file.tell() == SAVED_BYTES


def test_derived_files_that_are_denied_leave_the_disk_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host starts without them, and its disk is not full for that (DECISIONS D593)."""
    look = shutil.disk_usage

    class Usage:
        total, free = 1000, 150

        def __init__(self, folder: Path) -> None:
            look(folder)

    monkeypatch.setattr(manifest_files.shutil, "disk_usage", Usage)
    derived = tmp_path / "derived"
    derived.write_text("in the way")
    assert spare_at(derived / "checkpoints") == spare_bytes(1000, 150)
    derived.unlink()
    derived.mkdir()
    with bound_by_modes(), mode(derived, 0):
        assert spare_at(derived / "checkpoints") == spare_bytes(1000, 150)
