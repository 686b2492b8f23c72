"""Where a log is copied to that can't be read in its place."""

import tempfile
from pathlib import Path

import pytest

from replica.io.readonly import NoRoomForCopy, _roomy_folder
from replica.refusals import StoreFull


def test_a_copy_needs_a_folder_with_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert _roomy_folder(1) == tmp_path
    with pytest.raises(StoreFull, match="1,152,921,504,606,846,976 bytes") as caught:
        _roomy_folder(1 << 60)
    assert "TMPDIR" in NoRoomForCopy.next_step == caught.value.next_step
