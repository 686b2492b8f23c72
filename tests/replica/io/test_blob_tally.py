"""Blobs are counted in files and bytes, without a look at the folder each time (LIM-11)."""

import hashlib
from pathlib import Path

import pytest

from replica import limits
from replica.ids import ConversationId, Digest
from replica.io import blob_tally
from replica.io.blob_tally import Tallies, Tally
from replica.io.blobs import Blobs
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
    listed: list[Path] = []
    sizes = blob_tally.sizes

    def counted(folder: Path) -> dict[str, int]:
        listed.append(folder)
        return sizes(folder)

    monkeypatch.setattr(blob_tally, "sizes", counted)
    blobs = Blobs(tmp_path)
    for number in range(5):
        await _write(blobs, ONE, bytes([number]))
    assert len(listed) == 1


def test_an_upload_counts_with_its_final_size_and_replaces_one_of_its_name() -> None:
    tally = Tally({"a": 10})
    tally.check("b", 90, 100)
    with pytest.raises(QuotaExceeded):
        tally.check("b", 91, 100)
    tally.put("b", 90)
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
