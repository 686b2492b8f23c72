"""Blobs are counted in files and bytes, without a look at the folder each time (LIM-11)."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from replica import limits
from replica.ids import ConversationId, Digest
from replica.io import blob_tally
from replica.io.blob_tally import Tallies, Tally
from replica.io.blobs import Blobs
from replica.io.expiring_blobs import ExpiringBlobs
from replica.refusals import BlobDigestMismatch, QuotaExceeded

ONE, TWO = ConversationId(b"1" * 32), ConversationId(b"2" * 32)


def _digest(data: bytes) -> Digest:
    return Digest(hashlib.sha256(data).digest())


async def _write(blobs: Blobs, conversation: ConversationId, data: bytes) -> None:
    async with await blobs.open_write(conversation, _digest(data), len(data), 0) as writer:
        await writer.write(data)


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
    iterdir, scandir = Path.iterdir, os.scandir

    def counted(folder: Path) -> Iterator[Path]:
        listed.append(folder)
        return iterdir(folder)

    def scanned(folder: str) -> object:
        listed.append(Path(folder))
        return scandir(folder)

    monkeypatch.setattr(Path, "iterdir", counted)
    monkeypatch.setattr(os, "scandir", scanned)
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
    assert await blobs.used(ONE) == 4 + len(b"of an earlier process")
    assert listed == [tmp_path / ONE.hex()]


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
    tally = Tally({"a": 10})
    tally.check("b", 90, 100)
    with pytest.raises(QuotaExceeded):
        tally.check("b", 91, 100)
    tally.begin("b", 90)
    tally.check("b", 90, 100)
    tally.drop("a")
    tally.check("b", 100, 100)


def test_the_tallies_kept_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blob_tally, "FOLDERS_MAX", 2)
    tallies = Tallies()
    first = tallies.of(tmp_path / "0")
    for name in ("1", "2"):
        tallies.of(tmp_path / name)
    assert len(tallies._of) == 2
    assert tallies.of(tmp_path / "0") is not first
