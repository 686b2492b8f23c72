"""Crashes happen on a disk: its pace decides how often a kill meets an unfinished commit."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

DISK = "/var/tmp"


@pytest.fixture(autouse=True)
def on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have this process and those it starts keep their files on a disk (DECISIONS D377)."""
    monkeypatch.setenv("TMPDIR", DISK)
    monkeypatch.setattr(tempfile, "tempdir", DISK)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Return a folder on a disk."""
    with tempfile.TemporaryDirectory(dir=DISK) as folder:
        yield Path(folder)
