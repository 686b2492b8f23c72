"""Where a log is copied to that can't be read in its place."""

import os
import tempfile
from pathlib import Path

import pytest

from replica.io.store import readonly
from replica.io.store.readonly import NoRoomForCopy, _roomy_folder, open_read_only
from replica.io.store.store import Store
from replica.refusals import StoreFull, StoreLocked


def test_a_copy_needs_a_folder_with_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert _roomy_folder(1) == tmp_path
    with pytest.raises(StoreFull, match="1,152,921,504,606,846,976 bytes") as caught:
        _roomy_folder(1 << 60)
    assert "TMPDIR" in NoRoomForCopy.next_step == caught.value.next_step


async def test_who_keeps_a_reader_out_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def locked(_path: Path) -> Store:
        raise StoreLocked("another process has the file locked: locking protocol")

    path = tmp_path / "log.db"
    async with await Store.open(path):
        monkeypatch.setattr(readonly, "_open", locked)
        with pytest.raises(StoreLocked, match=f"process {os.getpid()} holds"):
            async with open_read_only(path):
                pass
