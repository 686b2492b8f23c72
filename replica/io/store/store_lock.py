"""The lock of a store: one process holds it, and the file says which (DECISIONS D364).

The kernel releases the lock with the process. The process id in the file is for the reader
of an error alone, and means nothing while nobody holds the lock.
"""

import fcntl
import os
from pathlib import Path

from replica.errors import StoreError
from replica.io.files import FILE_MODE, make_folder, open_regular, store_error, typed_errors
from replica.io.process import close_file, own_file
from replica.io.store import tail
from replica.refusals import StoreLocked, StoreReadOnly

_PID_BYTES_MAX = 20


def lock(path: Path) -> int:
    """Lock the store for this process, and create its file if it is new.

    The lock ends by `unlock` or with the process. Raises StoreLocked with the process id of its
    holder, StoreReadOnly, StoreCorrupt, OSError.
    """
    descriptor = lock_name(path)
    try:
        tail.require_content(path)
        # SQLite would create the file readable to all. Done under the lock, because closing
        # a descriptor of a database drops the locks SQLite holds on it in this process.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, FILE_MODE))
    except BaseException:
        close_file(descriptor)
        raise
    return descriptor


def lock_name(path: Path) -> int:
    """Lock the store whatever its files are, or whether they are there; as `lock` else.

    Raises StoreLocked with the process id of its holder, StoreReadOnly, OSError.
    """
    make_folder(path.parent)
    try:
        descriptor = own_file(open_regular(_file(path), os.O_RDWR | os.O_CREAT))
    except PermissionError as error:
        raise _denied(path, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except BlockingIOError as error:
        holder = _words(_pid_in(descriptor))
        close_file(descriptor)
        raise StoreLocked(f"{holder} holds {path}") from error
    except BaseException:
        close_file(descriptor)
        raise
    return descriptor


def unlock(descriptor: int) -> None:
    """Release a lock."""
    close_file(descriptor)


def require_free(path: Path) -> None:
    """Raise StoreLocked if a process holds the store at `path` now.

    Raises StoreReadOnly, and other OSErrors as StoreError.
    """
    with typed_errors():
        try:
            descriptor = own_file(open_regular(_file(path), os.O_RDWR))
        except FileNotFoundError:
            return
        except PermissionError as error:
            raise _denied(path, error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreLocked(f"{_words(_pid_in(descriptor))} holds {path}") from error
        finally:
            close_file(descriptor)


def _denied(path: Path, error: PermissionError) -> StoreError:
    """Return the refusal of a folder that may not be written, or not even be read."""
    if os.access(path.parent, os.R_OK | os.X_OK):
        return StoreReadOnly(f"{path.parent} can't be written")
    return store_error(error)


def _file(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


def _pid_in(descriptor: int) -> int | None:
    """Return the process id in a lock file; None where its holder has not written it yet."""
    text = os.pread(descriptor, _PID_BYTES_MAX, 0).strip()
    return int(text) if text.isdigit() else None


def _words(pid: int | None) -> str:
    return f"process {pid}" if pid is not None else "another process"
