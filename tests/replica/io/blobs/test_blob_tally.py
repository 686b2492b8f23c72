"""Blobs are counted in files and bytes, without a look at the folder each time (LIM-11)."""

import asyncio
import hashlib
import os
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from replica import limits
from replica.errors import StoreError
from replica.ids import ConversationId, Digest
from replica.io.blobs import blob_tally
from replica.io.blobs.blob_files import file_sizes
from replica.io.blobs.blob_folder import BlobFolder
from replica.io.blobs.blob_tally import Tallies, Tally
from replica.io.blobs.blobs import Blobs
from replica.io.blobs.expiring_blobs import ExpiringBlobs
from replica.refusals import BlobDigestMismatch, BlobMissing, QuotaExceeded, StoreLocked

ONE, TWO = ConversationId(b"1" * 32), ConversationId(b"2" * 32)


def _digest(data: bytes) -> Digest:
    return Digest(hashlib.sha256(data).digest())


async def _write(blobs: Blobs, conversation: ConversationId, data: bytes) -> None:
    async with await blobs.open_write(conversation, _digest(data), len(data), 0) as writer:
        await writer.write(data)


class Noted:
    """A quota without a bound that notes the bytes it is told."""

    def __init__(self) -> None:
        self.bytes: dict[tuple[ConversationId, str], int] = {}
        self.files: dict[tuple[ConversationId, str], int] = {}

    def check_blobs(
        self, conversation: ConversationId, more_bytes: int, more_files: int = 0
    ) -> None:
        """Refuse nothing."""

    def set_blobs(
        self, conversation: ConversationId, store: str, size_bytes: int, files: int
    ) -> None:
        self.bytes[conversation, store] = size_bytes
        self.files[conversation, store] = files


async def test_the_files_of_a_conversation_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BLOB_FILES_MAX", 2)
    blobs = Blobs(tmp_path)
    await _write(blobs, ONE, b"a")
    with pytest.raises(BlobDigestMismatch):
        async with await blobs.open_write(ONE, _digest(b"b"), 1, 0) as writer:
            await writer.write(b"c")
    await _write(blobs, ONE, b"b")
    await _write(blobs, TWO, b"c")
    for again in (blobs, Blobs(tmp_path)):
        with pytest.raises(QuotaExceeded):
            await _write(again, ONE, b"c")
    await blobs.delete(ONE)
    await _write(blobs, TWO, b"d")


async def test_a_folder_is_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await _write(Blobs(tmp_path), ONE, b"of an earlier process")
    listed: list[Path] = []

    def count(name: str) -> None:
        found = getattr(os, name)

        def counted(folder: Path | str) -> object:
            listed.append(Path(folder))
            return found(folder)

        monkeypatch.setattr(os, name, counted)

    count("listdir")
    count("scandir")
    blobs = ExpiringBlobs(tmp_path)
    for number in range(5):
        data = bytes([number])
        assert not (await blobs.stat(ONE, _digest(data))).complete
        await _write(blobs, ONE, data)
        assert (await blobs.stat(ONE, _digest(data))).complete
    async with await blobs.open_write(ONE, _digest(b"long"), 4, 0) as writer:
        await writer.write(b"lo")
    async with await blobs.open_write(ONE, _digest(b"long"), 3, 0):  # begins anew
        pass
    assert await blobs.remove(ONE, _digest(b"long")) == 0
    assert await blobs.remove(ONE, _digest(bytes([1]))) == 1
    assert listed == [tmp_path / ONE.hex()]


async def test_a_quota_is_told_all_bytes_and_each_change(tmp_path: Path) -> None:
    await _write(Blobs(tmp_path), ONE, b"of an earlier process")
    blobs, noted, one = Blobs(tmp_path), Noted(), (ONE, tmp_path.name)
    await blobs.count_with(noted)
    before = len(b"of an earlier process")
    assert (noted.bytes, noted.files) == ({one: before}, {one: 1})
    async with await blobs.open_write(ONE, _digest(b"long"), 4, 0) as writer:
        assert noted.bytes[one] == before + 4
        await writer.write(b"lo")
    assert noted.bytes[one] == before + 2
    async with await blobs.open_write(ONE, _digest(b"long"), 3, 0):
        assert noted.bytes[one] == before + 3
    assert noted.bytes[one] == before
    with pytest.raises(BlobDigestMismatch):
        async with await blobs.open_write(ONE, _digest(b"right"), 5, 0) as writer:
            await writer.write(b"wrong")
    assert noted.bytes[one] == before
    (whole,) = (file for file in (tmp_path / ONE.hex()).iterdir() if not file.suffix)
    whole.write_bytes(b"other")
    with pytest.raises(BlobMissing):
        _ = [part async for part in blobs.read(ONE, _digest(b"of an earlier process"))]
    assert noted.bytes[one] == len(b"other")
    await blobs.delete(ONE)
    assert noted.bytes[one] == 0


async def test_an_upload_whose_file_is_gone_begins_anew(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    async with await blobs.open_write(ONE, _digest(b"long"), 4, 0) as writer:
        await writer.write(b"lo")
    (part,) = (tmp_path / ONE.hex()).iterdir()
    part.unlink()
    assert (await blobs.stat(ONE, _digest(b"long"))).committed_bytes == 0
    await _write(blobs, ONE, b"long")
    assert (await blobs.stat(ONE, _digest(b"long"))).complete


async def test_an_upload_is_found_again_by_another_process(tmp_path: Path) -> None:
    async with await Blobs(tmp_path).open_write(ONE, _digest(b"long"), 4, 0) as writer:
        await writer.write(b"lo")
    state = await Blobs(tmp_path).stat(ONE, _digest(b"long"))
    assert (state.complete, state.committed_bytes, state.size_bytes) == (False, 2, 4)
    async with await Blobs(tmp_path).open_write(ONE, _digest(b"long"), 5, 0):
        pass
    (part,) = (tmp_path / ONE.hex()).iterdir()
    assert part.name.endswith(".5.part")


def test_an_upload_counts_with_its_final_size_and_replaces_one_of_its_name() -> None:
    noted: list[tuple[int, int]] = []
    tally = Tally({"a": 10}, lambda *used: noted.append(used), BlobFolder(Path()))
    tally.check("b", 90, 100)
    with pytest.raises(QuotaExceeded):
        tally.check("b", 91, 100)
    tally.open("b", 90)
    tally.check("b", 90, 100)
    assert (tally.growth("b", 90), tally.growth("b", 85)) == (0, -5)
    tally.drop("a")
    tally.check("b", 100, 100)
    tally.close("b", 90, 30)
    assert (tally.total, tally.announced("b"), tally.growth("b", 85)) == (30, 90, 55)
    tally.complete("b", 90)
    assert (tally.total, tally.announced("b")) == (90, None)
    assert noted[-1] == (90, 1)


def test_a_listing_counts_what_is_on_disk_and_finds_uploads() -> None:
    sizes = {"a": 10, "b.90.part": 3, "c.bad": 7}
    tally = Tally(sizes, lambda _total, _files: None, BlobFolder(Path()))
    assert (tally.total, tally.announced("a"), tally.announced("b")) == (20, None, 90)
    assert tally.announced("c") is None


async def test_the_tallies_kept_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blob_tally, "FOLDERS_MAX", 2)
    tallies = Tallies(tmp_path, Noted().check_blobs)
    names = [ConversationId(bytes([number]) * 32) for number in range(4)]
    first = await tallies.of(names[0])
    async with tallies.held(names[1]) as held:
        for name in names[2:]:
            await tallies.of(name)
        assert len(tallies._of) == 2
        assert await tallies.of(names[0]) is not first
        assert await tallies.of(names[1]) is held


async def test_a_folder_that_many_ask_about_is_listed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[Path] = []
    monkeypatch.setattr(blob_tally, "file_sizes", lambda folder: listed.append(folder) or {})
    tallies = Tallies(tmp_path, Noted().check_blobs)
    first, second = await asyncio.gather(tallies.of(ONE), tallies.of(ONE))
    assert first is second
    assert len(listed) == 1


async def _begin(blobs: Blobs, data: bytes, size: int) -> None:
    """Leave an upload of `size` bytes that has these."""
    async with await blobs.open_write(ONE, _digest(b"long"), size, 0) as writer:
        await writer.write(data)


async def _read_damaged(blobs: ExpiringBlobs, folder: Path) -> None:
    (folder / _digest(b"whole").hex()).write_bytes(b"other")
    with pytest.raises(BlobMissing):
        _ = [part async for part in blobs.read(ONE, _digest(b"whole"))]


async def _go_on(blobs: ExpiringBlobs) -> None:
    async with await blobs.open_write(ONE, _digest(b"long"), 4, 2) as writer:
        await writer.write(b"ng")


CHANGES: dict[str, Callable[[ExpiringBlobs, Path], Awaitable[object]]] = {
    "remove a blob": lambda blobs, _: blobs.remove(ONE, _digest(b"whole")),
    "remove an upload": lambda blobs, _: blobs.remove(ONE, _digest(b"long")),
    "sweep": lambda blobs, _: blobs.sweep(2.0**32),
    "begin anew": lambda blobs, _: _begin(blobs, b"lon", 3),
    "end": lambda blobs, _: _go_on(blobs),
    "set aside": _read_damaged,
    "delete all": lambda blobs, _: blobs.delete(ONE),
}
"""What changes files of the folder, which has the blob `whole` and an upload of `long`."""


@pytest.mark.parametrize("change", CHANGES)
async def test_a_cancelled_change_counts_what_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """The change is cancelled once its thread has changed a file, before the loop knows of it."""
    blobs, folder = ExpiringBlobs(tmp_path), tmp_path / ONE.hex()
    await _write(blobs, ONE, b"whole")
    await _begin(blobs, b"lo", 4)
    loop = asyncio.get_running_loop()

    def cancel() -> None:
        loop.call_soon_threadsafe(changing.cancel)

    for name in ("unlink", "replace", "rename"):
        monkeypatch.setattr(os, name, _then(getattr(os, name), cancel))
    changing = asyncio.ensure_future(CHANGES[change](blobs, folder))
    with pytest.raises(asyncio.CancelledError):
        await changing
    tally = await blobs._tallies.of(ONE)
    assert tally._sizes == file_sizes(folder)
    assert tally.total == sum(file_sizes(folder).values())
    assert tally.holders == 0


def _then(work: Callable[..., object], also: Callable[[], object]) -> Callable[..., object]:
    def both(*args: object, **kwargs: object) -> object:
        result = work(*args, **kwargs)
        also()
        return result

    return both


@pytest.mark.parametrize("bad_sync", ["of the file", "of the folder"])
async def test_a_failed_sync_leaves_no_file_that_is_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad_sync: str
) -> None:
    sync = os.fsync
    blobs, folder = Blobs(tmp_path), tmp_path / ONE.hex()
    await _begin(blobs, b"lo", 4)

    def refused(descriptor: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        is_last = os.fstat(descriptor).st_size == 4 or list(folder.glob("*[0-9a-f]"))
        if is_last and is_folder == (bad_sync == "of the folder"):
            raise OSError(5, "the disk refuses")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", refused)
    async with await blobs.open_write(ONE, _digest(b"long"), 4, 2) as writer:
        with pytest.raises(StoreError):
            await writer.write(b"ng")
    assert not writer.state.complete
    assert (await blobs._tallies.of(ONE))._sizes == file_sizes(folder)


async def test_what_was_removed_before_a_locked_upload_counts_no_longer(tmp_path: Path) -> None:
    blobs, folder = ExpiringBlobs(tmp_path), tmp_path / ONE.hex()
    await _begin(blobs, b"lo", 4)
    (folder / f"{_digest(b'long').hex()}.bad").write_bytes(b"bad")
    mine = ExpiringBlobs(tmp_path)
    await mine.stat(ONE, _digest(b"long"))
    async with await blobs.open_write(ONE, _digest(b"long"), 4, 2):
        with pytest.raises(StoreLocked):
            await mine.remove(ONE, _digest(b"long"))
    assert (await mine._tallies.of(ONE))._sizes == file_sizes(folder)


async def test_an_upload_that_is_not_replaced_stays_known(tmp_path: Path) -> None:
    """Another process writes it, and ends without another byte."""
    other, mine = Blobs(tmp_path), Blobs(tmp_path)
    await _begin(other, b"lo", 4)
    async with await other.open_write(ONE, _digest(b"long"), 4, 2):
        with pytest.raises(StoreLocked):
            await mine.open_write(ONE, _digest(b"long"), 5, 0)
    state = await mine.stat(ONE, _digest(b"long"))
    assert (state.committed_bytes, state.size_bytes) == (2, 4)


async def test_a_folder_is_counted_beside_as_many_that_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blob_tally, "FOLDERS_MAX", 1)
    blobs = Blobs(tmp_path)
    async with await blobs.open_write(ONE, _digest(b"ab"), 2, 0) as writer, asyncio.timeout(10):
        await writer.write(b"a")
        await _write(blobs, TWO, b"c")
        await writer.write(b"b")
    assert (await blobs.stat(ONE, _digest(b"ab"))).complete
