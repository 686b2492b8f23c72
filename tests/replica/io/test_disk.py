"""Disk errors become typed errors by their kind, each with a next step."""

import errno
import sqlite3
from pathlib import Path

import pytest

from replica.errors import StoreError
from replica.io.disk import make_folder, store_error, typed_errors
from replica.refusals import StoreFull


def test_a_full_device_is_a_full_store() -> None:
    with pytest.raises(StoreFull) as caught, typed_errors(), Path("/dev/full").open("wb") as device:
        device.write(b"x")
        device.flush()
    assert caught.value.retryable
    assert caught.value.next_step.startswith("Free disk space")


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


def test_a_folder_that_can_not_be_created_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"in the way")
    with pytest.raises(StoreError, match="File exists"), typed_errors():
        make_folder(tmp_path / "file" / "folder")
    assert (tmp_path / "file").read_bytes() == b"in the way"
