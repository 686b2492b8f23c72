"""A hub's bound on disk follows the disk, and its log says when little is left (LIM-15)."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import structlog.testing

from replica import limits
from replica.ids import ConversationId
from replica.refusals import QuotaExceeded
from syncd.bounds.disk_quota import DiskQuota
from syncd.io import disk_watch
from syncd.io.disk_watch import DiskWatch
from tests.support.writers import Writer

ADA, BOB = (Writer(number).public for number in (1, 2))
ONE = ConversationId(bytes(32))
MB = 1 << 20


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A disk of 100 MB, which may get another size."""
    disk = SimpleNamespace(total=100 * MB)
    monkeypatch.setattr(disk_watch, "disk_usage", lambda folder: disk)
    return disk


def test_a_larger_disk_is_used_without_a_restart(tmp_path: Path, disk: SimpleNamespace) -> None:
    quota = DiskQuota(hub_max=disk_watch.share_of(tmp_path))
    watch = DiskWatch(quota, tmp_path)
    quota.set_log(ONE, ADA, int(limits.DISK_SHARE * disk.total) - MB)
    watch.look()
    with pytest.raises(QuotaExceeded):
        quota.check(ADA, 2 * MB)
    disk.total *= 4
    watch.look()
    quota.check(ADA, 2 * MB)
    disk.total //= 4
    watch.look()
    with pytest.raises(QuotaExceeded):
        quota.check(ADA, 2 * MB)


def test_the_log_says_once_that_little_is_left_and_once_that_it_is_over(
    tmp_path: Path, disk: SimpleNamespace
) -> None:
    quota = DiskQuota(hub_max=disk_watch.share_of(tmp_path))
    watch = DiskWatch(quota, tmp_path)
    with structlog.testing.capture_logs() as lines:
        watch.look()
        quota.set_log(ONE, ADA, int(limits.DISK_SHARE * disk.total) - MB)
        watch.look()
        watch.look()
        disk.total *= 4
        watch.look()
    assert [(line["log_level"], line["bytes"]) for line in lines] == [
        ("warning", MB),
        ("info", MB + int(3 * limits.DISK_SHARE * 100 * MB)),
    ]


def test_a_disk_that_can_not_be_looked_at_keeps_its_bound_and_is_said_once(tmp_path: Path) -> None:
    quota, folder = DiskQuota(hub_max=2 * MB), tmp_path / "hub"
    watch = DiskWatch(quota, folder)
    with structlog.testing.capture_logs() as lines:
        watch.look()
        watch.look()
        with pytest.raises(QuotaExceeded):
            quota.check(BOB, 3 * MB)
        folder.mkdir()
        watch.look()
        watch.look()
    assert [(line["event"], line["path"]) for line in lines] == [
        ("the disk can't be looked at", str(folder)),
        ("the disk can be looked at again", str(folder)),
    ]
    assert str(folder) in lines[0]["detail"]


def test_a_bound_of_the_operator_stays(disk: SimpleNamespace) -> None:
    quota = DiskQuota(hub_max=2 * MB)
    DiskWatch(quota, None).look()
    with pytest.raises(QuotaExceeded):
        quota.check(BOB, 3 * MB)
