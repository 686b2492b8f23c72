"""A file written for a user replaces another one only if asked, and a device never."""

import errno
import os
from pathlib import Path

import pytest

from antiphon.cli.common.errors import FileExists, FileUnusable
from antiphon.cli.common.user_files import check_creatable, check_replaceable, new_file
from replica.refusals import ArgumentInvalid


def test_a_file_is_replaced_if_asked_and_a_device_never(tmp_path: Path) -> None:
    file, pipe = tmp_path / "file", tmp_path / "pipe"
    check_replaceable(file, force=False)
    file.write_text("before")
    os.mkfifo(pipe)
    check_replaceable(file, force=True)
    with pytest.raises(FileExists):
        check_replaceable(file, force=False)
    for path in (pipe, tmp_path, Path(os.devnull)):
        with pytest.raises(ArgumentInvalid, match="no regular file"):
            check_replaceable(path, force=True)


def test_a_file_has_its_name_once_it_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("before")
    with new_file(file, force=True) as stream:
        stream.write(b"after")
        stream.flush()
        assert file.read_text() == "before"
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("after", 0o600)
    assert [*tmp_path.iterdir()] == [file]


def test_a_file_that_came_first_keeps_its_name(tmp_path: Path) -> None:
    file = tmp_path / "file"
    with pytest.raises(FileExists), new_file(file, force=False) as stream:
        stream.write(b"late")
        file.write_text("first")
    assert file.read_text() == "first"
    assert [*tmp_path.iterdir()] == [file]


def test_on_a_full_disk_the_next_step_is_to_free_space(tmp_path: Path) -> None:
    for code, word in ((errno.ENOSPC, "Free disk space"), (errno.EACCES, "permissions")):
        with pytest.raises(FileUnusable) as refused, new_file(tmp_path / "file", force=True):
            raise OSError(code, os.strerror(code))
        assert word in refused.value.next_step


def test_of_a_file_that_fails_nothing_stays(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("before")
    with pytest.raises(FileUnusable, match="no space"), new_file(file, force=True) as stream:
        stream.write(b"half")
        raise OSError(28, "no space")
    assert file.read_text() == "before"
    assert [*tmp_path.iterdir()] == [file]
    with pytest.raises(FileUnusable), new_file(tmp_path / "absent" / "file", force=True):
        pass


def test_a_file_that_can_not_be_made_later_is_refused_now(tmp_path: Path) -> None:
    file = tmp_path / "file"
    check_creatable(file, force=False)
    assert [*tmp_path.iterdir()] == []
    file.write_text("before")
    check_creatable(file, force=True)
    with pytest.raises(FileExists):
        check_creatable(file, force=False)
    assert file.read_text() == "before"
    for path in (tmp_path / "absent" / "file", file / "below", tmp_path / ("x" * 300)):
        with pytest.raises(FileUnusable):
            check_creatable(path, force=True)
    with pytest.raises(ArgumentInvalid, match="no regular file"):
        check_creatable(tmp_path, force=True)
