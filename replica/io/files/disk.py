"""Private files, durable folders, and the typed errors of disks.

Common to the store, the key files and the blobs. A new or renamed file
survives power loss only after its folder was synced too.
"""

import errno
import os
import secrets
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from replica.errors import StoreError, with_step
from replica.refusals import StoreCorrupt, StoreFull, StoreLocked, StoreReadOnly

FOLDER_MODE = 0o700
FILE_MODE = 0o600
_WITHOUT_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
"""Errors of a link in a file system that has none."""
_FREE_DESCRIPTORS = "Close files, or raise the limit of open files (`ulimit -n`), and try again."


def make_folder(path: Path) -> None:
    """Create `path` and its missing parents durably, open to this user alone."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(mode=FOLDER_MODE, exist_ok=True)
    sync_folder(path.parent)


def file_at(path: Path) -> tuple[int, int] | None:
    """Return the device and number of the file at a path; None if there is none.

    Raises StoreError if that can't be told.
    """
    try:
        found = os.stat(path)  # noqa: PTH116  # pathlib takes ten times as long
    except FileNotFoundError:
        return None
    except OSError as error:
        raise store_error(error) from error
    return found.st_dev, found.st_ino


class NotRegular(OSError):
    """What has the name of a file is another thing, such as a pipe or a device."""


def open_regular(path: Path, flags: int) -> int:
    """Open a file, private where it is made; return its descriptor.

    A pipe would wait for who writes to it, and a device may never end. Raises NotRegular, OSError.
    """
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY, FILE_MODE)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise NotRegular(f"{path} is not a regular file")


def read_regular(path: Path, bytes_max: int) -> bytes:
    """Return the first bytes of a file. Raises NotRegular, OSError."""
    with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
        return file.read(bytes_max)


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def create(path: Path, content: bytes) -> bool:
    """Create a private file, whole and durable or not at all; say whether there was none.

    Raises OSError.
    """
    make_folder(path.parent)
    try:
        with replacing(path, may_replace=False) as file:
            file.write(content)
    except FileExistsError:
        return False
    return True


@contextmanager
def replacing(path: Path, *, may_replace: bool = True) -> Iterator[BinaryIO]:
    """Open a private file that takes the name `path` once it is whole and durable.

    Of one that fails before, nothing stays, and what had the name keeps it. Unless it
    `may_replace` another file, one that came first keeps the name too: FileExistsError.
    Raises OSError, which names the file also where a write failed.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(descriptor)
        if may_replace:
            draft.replace(path)
        else:
            _take_free_name(draft, path)
        sync_folder(path.parent)
    except OSError as error:
        if error.errno is not None and error.filename is None:  # as that of a full disk
            error.filename = str(path)
        raise
    finally:
        draft.unlink(missing_ok=True)


def _take_free_name(draft: Path, path: Path) -> None:
    """Give a file the name `path`, unless there is another one. Raises FileExistsError, OSError."""
    try:
        path.hardlink_to(draft)  # unlike a rename, it never replaces a file that came first
    except OSError as error:
        if error.errno not in _WITHOUT_LINKS:
            raise
        # The file system has no links, as FAT on a memory stick: nothing there does both at once.
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from error
        draft.replace(path)


def set_aside(path: Path) -> Path:
    """Rename a damaged file, so that nothing is ever deleted; return its new path."""
    number = 1
    while os.path.lexists(aside := path.with_name(f"{path.name}.damaged-{number}")):
        number += 1
    path.replace(aside)
    sync_folder(path.parent)
    return aside


_DAMAGE = {
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    # The statements are fixed and fit the schema: these say that the schema or a record changed.
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_TOOBIG,
    sqlite3.SQLITE_SCHEMA,
}
"""SQLite's primary codes of a damaged file."""

DISK_ERRORS = (sqlite3.Error, OSError, UnicodeDecodeError)
"""Errors of reading and writing; the last is raised if SQLite's message repeats damaged text."""


def store_error(
    error: sqlite3.Error | OSError | UnicodeDecodeError, path: Path | None = None
) -> StoreError:
    """Return the typed error for a disk error; that of a full disk names `path`, if it is given."""
    found = _store_error(error)
    is_named = isinstance(error, OSError) and error.filename is not None
    if path is None or is_named or not isinstance(found, StoreFull):
        return found
    return StoreFull(f"{path}: {found.detail}")


def _store_error(error: sqlite3.Error | OSError | UnicodeDecodeError) -> StoreError:
    if isinstance(error, UnicodeDecodeError):
        return StoreCorrupt("the file itself is damaged: its schema is no text")
    if isinstance(error, OSError):
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        is_denied = error.errno in (errno.EACCES, errno.EPERM) and error.filename is not None
        if error.errno == errno.EROFS or (is_denied and os.access(error.filename, os.R_OK)):
            return StoreReadOnly(str(error))
        if error.errno in (errno.EMFILE, errno.ENFILE):
            return with_step(StoreError(str(error)), _FREE_DESCRIPTORS)
        return StoreFull(str(error)) if full else StoreError(str(error))
    # The low byte is the primary code, the higher ones extend it (sqlite.org/rescode.html).
    extended = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    code = extended & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return StoreFull(str(error))
    if code == sqlite3.SQLITE_READONLY:
        return StoreReadOnly(str(error))
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_PROTOCOL):  # as one that was stopped keeps it
        return StoreLocked(f"another process has the file locked: {error}")
    if extended == sqlite3.SQLITE_IOERR_SHMSIZE:
        return StoreFull("the disk is full: there is no room for the file that SQLite shares")
    if code in _DAMAGE:
        return StoreCorrupt(f"the file itself is damaged: {error}")
    return StoreError(str(error))


@contextmanager
def typed_errors(path: Path | None = None) -> Iterator[None]:
    """Raise disk errors of the block as StoreError; those of a full disk name the file `path`."""
    try:
        yield
    except DISK_ERRORS as error:
        raise store_error(error, path) from error
