"""Uploads: what they count while they are open and after, and who may go on with them."""

import hashlib
import os
import stat
from pathlib import Path

import pytest

from replica import limits
from replica.errors import StoreError
from replica.ids import ConversationId, Digest
from replica.io.blobs import blob_tally
from replica.io.blobs.blob_files import BlobState
from replica.io.blobs.blobs import Blobs
from replica.io.blobs.expiring_blobs import ExpiringBlobs
from replica.refusals import BlobOffsetInvalid, QuotaExceeded, StoreLocked

ONE, TWO = ConversationId(b"1" * 32), ConversationId(b"2" * 32)
DATA = bytes(range(100))
DAY_S = 24 * 3600


def digest_of(data: bytes) -> Digest:
    return Digest(hashlib.sha256(data).digest())


DIGEST = digest_of(DATA)
OTHER = digest_of(b"other")


def files(folder: Path, pattern: str = "*") -> list[Path]:
    """Return the files of all conversations."""
    return list(folder.glob(f"*/{pattern}"))


async def begin(
    blobs: Blobs,
    data: bytes,
    digest: Digest = DIGEST,
    size: int = 100,
    conversation: ConversationId = ONE,
) -> BlobState:
    """Begin an upload of `size` bytes, write `data`, and close it."""
    async with await blobs.open_write(conversation, digest, size, 0) as writer:
        await writer.write(data)
    return writer.state


async def test_an_upload_counts_with_its_final_size_only_while_it_is_open(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path, total_bytes_max=100)
    async with await blobs.open_write(ONE, DIGEST, 100, 0) as writer:
        await writer.write(DATA[:40])
        with pytest.raises(QuotaExceeded):
            await begin(blobs, b"", OTHER, 1)
    for again in (blobs, Blobs(tmp_path, total_bytes_max=100)):
        with pytest.raises(QuotaExceeded):
            await begin(again, b"", OTHER, 61)
        await begin(again, b"", OTHER, 60)


async def test_a_refused_size_leaves_the_bytes_of_the_one_before(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path, total_bytes_max=100)
    await begin(blobs, DATA[:50])
    with pytest.raises(QuotaExceeded):
        await blobs.open_write(ONE, DIGEST, 101, 0)
    assert await blobs.stat(ONE, DIGEST) == BlobState(False, 50, 100)
    async with await blobs.open_write(ONE, DIGEST, 100, 50) as writer:
        assert (await writer.write(DATA[50:])).complete


async def test_a_swept_upload_without_a_byte_counts_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BLOB_FILES_MAX", 1)
    blobs = ExpiringBlobs(tmp_path)
    await begin(blobs, b"")
    (part,) = files(tmp_path)
    with pytest.raises(QuotaExceeded):
        await begin(blobs, b"", OTHER)
    await blobs.sweep(part.stat().st_mtime + DAY_S)
    await begin(blobs, b"", OTHER)


async def test_an_upload_without_progress_is_deleted_after_a_day(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    await begin(blobs, b"whole", digest_of(b"whole"), 5)
    await begin(blobs, DATA[:50])
    (part,) = files(tmp_path, "*.part")
    begun_s = part.stat().st_mtime
    assert await blobs.sweep(begun_s + DAY_S - 1) == {}
    assert await blobs.sweep(begun_s + DAY_S) == {ONE: 50}
    assert [file.name for file in files(tmp_path)] == [digest_of(b"whole").hex()]
    assert await blobs.stat(ONE, DIGEST) == BlobState(False, 0, 0)
    assert await blobs.sweep(begun_s + 2 * DAY_S) == {}


async def test_what_a_disk_does_not_delete_keeps_nothing_else_from_being_swept(
    tmp_path: Path,
) -> None:
    blobs = Blobs(tmp_path)
    for conversation in (ONE, TWO):
        await begin(blobs, DATA[:50], conversation=conversation)
    overdue = files(tmp_path, "*.part")
    kept = [part.with_name(f"{digest_of(b'kept').hex()}.4.part") for part in overdue]
    for folder in kept:
        folder.mkdir()  # as what can't be deleted on a damaged disk
    no_folder = tmp_path / digest_of(b"a conversation").hex()
    no_folder.touch()  # as what can't be listed there
    with pytest.raises(StoreError):
        await blobs.sweep(max(file.stat().st_mtime for file in kept) + DAY_S)
    assert sorted(files(tmp_path, "*.part")) == sorted(kept)
    assert no_folder.exists()


async def test_an_open_upload_is_not_swept(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    await begin(blobs, DATA[:50])
    (part,) = files(tmp_path)
    os.utime(part, (0, 0))
    async with await blobs.open_write(ONE, DIGEST, 100, 50) as writer:
        assert await blobs.sweep(10 * DAY_S) == {}
        assert (await writer.write(DATA[50:])).complete


async def test_nothing_is_appended_behind_bytes_that_were_not_counted(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    await begin(blobs, b"", OTHER)  # the folder is listed
    await begin(Blobs(tmp_path), DATA[:50])
    with pytest.raises(BlobOffsetInvalid):
        await blobs.open_write(ONE, DIGEST, 100, 0)
    state = await blobs.stat(ONE, DIGEST)
    assert state == BlobState(False, 50, 100)
    async with await blobs.open_write(ONE, DIGEST, 100, 50) as writer:
        assert (await writer.write(DATA[50:])).complete


async def test_the_tally_of_an_open_upload_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blob_tally, "FOLDERS_MAX", 1)
    blobs = Blobs(tmp_path, total_bytes_max=100)
    async with await blobs.open_write(ONE, DIGEST, 100, 0):
        await blobs.stat(TWO, DIGEST)
        with pytest.raises(QuotaExceeded):
            await begin(blobs, b"", OTHER, 1)


async def test_two_processes_do_not_write_one_blob(tmp_path: Path) -> None:
    """Each process has a `Blobs` of its own, and both begin before either has a byte."""
    mine, other = Blobs(tmp_path), Blobs(tmp_path)
    for blobs in (mine, other):
        await blobs.stat(ONE, DIGEST)
    async with await mine.open_write(ONE, DIGEST, 100, 0) as writer:
        await writer.write(DATA[:50])
        with pytest.raises(StoreLocked) as refused:
            await other.open_write(ONE, DIGEST, 100, 0)
        assert refused.value.retryable
        assert (await writer.write(DATA[50:])).complete
    assert b"".join([part async for part in other.read(ONE, DIGEST)]) == DATA
    async with await other.open_write(ONE, DIGEST, 100, 100) as again:
        assert again.state.complete


async def test_another_size_does_not_delete_what_another_process_writes(tmp_path: Path) -> None:
    mine = Blobs(tmp_path)
    async with await mine.open_write(ONE, DIGEST, 100, 0) as writer:
        with pytest.raises(StoreLocked):
            await Blobs(tmp_path).open_write(ONE, DIGEST, 99, 0)
        assert (await writer.write(DATA)).complete


async def test_bytes_and_names_are_durable_before_they_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, int]] = []
    sync = os.fsync

    def note(descriptor: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        whole = len(files(tmp_path, DIGEST.hex()))
        synced.append(("folder", whole) if is_folder else ("file", os.fstat(descriptor).st_size))
        sync(descriptor)

    (tmp_path / ONE.hex()).mkdir()
    monkeypatch.setattr(os, "fsync", note)
    blobs = Blobs(tmp_path)
    async with await blobs.open_write(ONE, DIGEST, 100, 0) as writer:
        assert writer.state.committed_bytes == 0
        assert synced == []  # nothing is reported yet
        await writer.write(DATA[:50])
    assert writer.state.committed_bytes == 50
    assert synced == [("file", 50), *[("folder", 0)] * 3]
    synced.clear()
    # A process that was killed may have left bytes, and names of the file and of the folders
    # above it, that are not durable.
    assert (await Blobs(tmp_path).stat(ONE, DIGEST)).committed_bytes == 50
    assert synced == [("file", 50), *[("folder", 0)] * 3]
    async with await blobs.open_write(ONE, DIGEST, 100, 50) as writer:
        synced.clear()
        assert (await writer.write(DATA[50:])).complete
    assert synced == [("file", 100), ("folder", 1)]


async def test_a_whole_blob_of_a_killed_process_is_durable_before_it_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The processes that made the folder and renamed the file did not live to sync the names."""
    folder = tmp_path / "blobs" / ONE.hex()
    folder.mkdir(parents=True)
    (folder / DIGEST.hex()).write_bytes(DATA)
    synced: list[str] = []
    sync = os.fsync

    def note(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    blobs, names = Blobs(tmp_path / "blobs"), [str(folder), str(folder.parent), str(tmp_path)]
    whole = BlobState(True, 100, 100)
    for _ in range(2):
        assert await blobs.stat(ONE, DIGEST) == whole
        assert synced == names
    again = Blobs(tmp_path / "blobs")
    async with await again.open_write(ONE, DIGEST, 100, 100) as writer:
        assert writer.state == whole
    assert synced == names * 2
    # A whole file that came since may be that of another process.
    (folder / OTHER.hex()).write_bytes(b"other")
    assert (await again.stat(ONE, OTHER)).complete
    assert synced == [*names * 2, str(folder)]


async def test_a_name_whose_sync_failed_is_synced_before_it_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs, sync = Blobs(tmp_path), os.fsync
    synced: list[int] = []

    def note(descriptor: int) -> None:
        if files(tmp_path, DIGEST.hex()):
            synced.append(descriptor)
            if len(synced) < 3:
                raise OSError(5, "the disk refuses")
        sync(descriptor)

    await begin(blobs, DATA[:50])
    monkeypatch.setattr(os, "fsync", note)
    async with await blobs.open_write(ONE, DIGEST, 100, 50) as writer:
        with pytest.raises(StoreError):
            await writer.write(DATA[50:])
    with pytest.raises(StoreError):
        await blobs.stat(ONE, DIGEST)
    for _ in range(2):
        assert (await blobs.stat(ONE, DIGEST)).complete
        assert len(synced) == 3


@pytest.mark.parametrize("size", [50, 100])
async def test_a_removed_blob_is_gone_durably_before_that_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    blobs, sync = ExpiringBlobs(tmp_path), os.fsync
    await begin(blobs, DATA[:size])
    synced: list[tuple[str, list[Path]]] = []

    def note(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append((path.name, files(tmp_path)))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    assert await blobs.remove(ONE, DIGEST) == size
    assert synced == [(ONE.hex(), [])]
    assert await blobs.remove(ONE, DIGEST) == 0
    assert len(synced) == 1
