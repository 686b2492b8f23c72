"""The disk of a hub, whose records are written when a test says so."""

from pathlib import Path

import pytest

from syncd.io import record_keeper
from syncd.shelves import records
from tests.syncd.io.hub_disk import Disk


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    monkeypatch.setattr(record_keeper, "CHECK_S", 3_600.0)  # no time passes but for `later`
    return Disk(tmp_path)


@pytest.fixture
def long_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every log be long enough for a record."""
    monkeypatch.setattr(records, "READ_ENTRIES_MAX", 2)
