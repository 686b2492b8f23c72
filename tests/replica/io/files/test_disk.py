"""Disk errors become typed errors by their kind, each with a next step."""

import errno
import os
import sqlite3
from pathlib import Path

import pytest

from replica.errors import StoreError
from replica.io.files.disk import (
    NotRegular,
    make_folder,
    open_regular,
    read_regular,
    replacing,
    set_aside,
    store_error,
    typed_errors,
)
from replica.refusals import StoreFull, StoreLocked


def test_what_is_set_aside_replaces_nothing_not_even_a_link_to_no_file(tmp_path: Path) -> None:
    path, link = tmp_path / "a.key", tmp_path / "a.key.damaged-1"
    path.write_bytes(b"damaged")
    link.symlink_to(tmp_path / "away")
    assert set_aside(path) == tmp_path / "a.key.damaged-2"
    assert link.is_symlink()


def test_a_full_device_is_a_full_store() -> None:
    with pytest.raises(StoreFull) as caught, typed_errors(), Path("/dev/full").open("wb") as device:
        device.write(b"x")
        device.flush()
    assert caught.value.retryable
    assert caught.value.next_step.startswith("Free disk space")


def test_a_full_disk_is_told_with_the_file_that_was_written(tmp_path: Path) -> None:
    path, full = tmp_path / "file", OSError(errno.ENOSPC, "No space left on device")
    with (
        pytest.raises(StoreFull, match=r"No space left on device: '.*/file'"),
        typed_errors(tmp_path / "other"),
        replacing(path),
    ):
        raise full
    with pytest.raises(StoreFull, match=r"/file: .*No space"), typed_errors(path):
        raise OSError(errno.ENOSPC, "No space left on device")
    refused = sqlite3.OperationalError("database or disk is full")
    refused.sqlite_errorcode = sqlite3.SQLITE_FULL
    with pytest.raises(StoreFull, match="/file: database or disk is full"), typed_errors(path):
        raise refused
    with pytest.raises(StoreError, match=r"^\[Errno 5\] refused$"), typed_errors(path):
        raise OSError(errno.EIO, "refused")


@pytest.mark.parametrize(
    ("number", "kind"),
    [(errno.ENOSPC, StoreFull), (errno.EDQUOT, StoreFull), (errno.EIO, StoreError)],
)
def test_only_errors_for_want_of_space_are_a_full_store(
    number: int, kind: type[StoreError]
) -> None:
    assert type(store_error(OSError(number, "refused"))) is kind


def test_sqlite_s_want_of_space_is_a_full_store() -> None:
    for code, kind in ((sqlite3.SQLITE_FULL, StoreFull), (sqlite3.SQLITE_IOERR_SHMSIZE, StoreFull),
                       (sqlite3.SQLITE_IOERR_READ, StoreError)):  # fmt: skip
        error = sqlite3.OperationalError("refused")
        error.sqlite_errorcode = code
        assert type(store_error(error)) is kind


def test_a_lock_of_sqlite_s_that_another_process_keeps_is_a_locked_store() -> None:
    for code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_BUSY_RECOVERY, sqlite3.SQLITE_PROTOCOL):
        error = sqlite3.OperationalError("locking protocol")
        error.sqlite_errorcode = code
        assert type(store_error(error)) is StoreLocked


def test_a_folder_that_can_not_be_created_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"in the way")
    with pytest.raises(StoreError, match="File exists"), typed_errors():
        make_folder(tmp_path / "file" / "folder")
    assert (tmp_path / "file").read_bytes() == b"in the way"


def test_only_a_regular_file_is_opened_and_so_much_of_it_is_read(tmp_path: Path) -> None:
    pipe, link, folder, file = (tmp_path / name for name in ("pipe", "link", "folder", "file"))
    os.mkfifo(pipe)
    link.symlink_to("/dev/zero")
    folder.mkdir()
    for path in (pipe, link, folder):
        with pytest.raises(NotRegular, match=f"^{path} is not a regular file$"):
            read_regular(path, 10)
    for path in (pipe, link):
        with pytest.raises(NotRegular, match=f"^{path} is not a regular file$"):
            open_regular(path, os.O_RDWR | os.O_CREAT)
    with pytest.raises(StoreError, match=f"^{pipe} is not a regular file$"), typed_errors():
        read_regular(pipe, 10)
    os.close(open_regular(file, os.O_RDWR | os.O_CREAT))
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_bytes(b"x" * 20)
    assert read_regular(file, 10) == b"x" * 10


@pytest.mark.parametrize("has_links", [True, False])
def test_a_new_file_takes_a_free_name_alone_also_without_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_links: bool
) -> None:
    def refuse(*_given: object) -> None:
        raise OSError(errno.EPERM, "no links on this file system")

    if not has_links:
        monkeypatch.setattr(Path, "hardlink_to", refuse)
    path = tmp_path / "file"
    with replacing(path, may_replace=False) as file:
        file.write(b"first")
    with pytest.raises(FileExistsError), replacing(path, may_replace=False) as file:
        file.write(b"second")
    assert [(one, one.read_bytes()) for one in tmp_path.iterdir()] == [(path, b"first")]
