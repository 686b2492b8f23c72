"""Files that a user names: one is written whole or not at all, and in place of none unasked."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import BinaryIO

from antiphon.cli.common.errors import FileExists, file_unusable
from replica.io import replacing
from replica.refusals import ArgumentInvalid


def read_file(path: Path, bytes_max: int) -> bytes:
    """Read the first bytes of a file. Raises FileUnusable."""
    try:
        with path.open("rb") as file:
            return file.read(bytes_max)
    except OSError as error:
        raise file_unusable(path, error) from error


def check_replaceable(file: Path, *, force: bool) -> None:
    """Raise FileExists for a file that may not be replaced, ArgumentInvalid for no regular one."""
    if not file.exists():
        return
    if not force:
        raise FileExists(f"{file} exists already")
    if not file.is_file():
        raise ArgumentInvalid(f"{file} is no regular file, and is not replaced")


def check_creatable(file: Path, *, force: bool) -> None:
    """Check that `new_file` can be used later, after work that would be lost.

    Raises FileExists as `check_replaceable` does, FileUnusable, or ArgumentInvalid for what is no
    regular file.
    """
    try:
        check_replaceable(file, force=force)
        with NamedTemporaryFile(dir=file.parent, prefix=f".{file.name}."):
            pass
    except OSError as error:
        raise file_unusable(file, error) from error


@contextmanager
def new_file(file: Path, *, force: bool) -> Iterator[BinaryIO]:
    """Open a file that takes its name once it is whole.

    Without `force` one that came first keeps it: FileExists. Raises FileUnusable.
    """
    try:
        with replacing(file, may_replace=force) as stream:
            yield stream
    except FileExistsError as error:
        raise FileExists(f"{file} exists already") from error
    except OSError as error:
        raise file_unusable(file, error) from error
