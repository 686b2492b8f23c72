"""A store opened read-only, beside the process that holds it.

The command line reads the log this way while another process follows it, or
where the folder can't be written or its disk is full: then it reads a copy elsewhere.
Nothing is written, not even to quarantine; a bad row is left out. The only
exception is a first opening that was cut short: it is completed here too
(DECISIONS D81).
"""

import contextlib
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Hashable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from replica.io.files import typed_errors
from replica.io.store import schema, tail
from replica.io.store.commit import GroupCommit
from replica.io.store.high_water import Mark, MarkFile
from replica.io.store.store import Store
from replica.io.store.store_lock import require_free
from replica.io.store.transaction import Statement
from replica.refusals import StoreFull, StoreLocked

_IN_MEMORY = Path("/dev/shm")  # noqa: S108  # a folder of its own is made there
_BESIDE_BYTES = 64 * 1024
"""Room for the file that SQLite makes beside the copy."""


class _NoCommit(GroupCommit):
    """Refuses every write."""

    def __init__(self) -> None:
        """Start no task and open no connection."""

    async def write(
        self,
        statements: Sequence[Statement],  # noqa: ARG002  # the signature of GroupCommit
        *,
        size_bytes: int = 0,  # noqa: ARG002
        truncate: bool = False,  # noqa: ARG002
        is_derived: bool = False,  # noqa: ARG002
        at_once: bool = False,  # noqa: ARG002
    ) -> None:
        """Refuse. Raises StoreLocked."""
        raise StoreLocked("the store was opened for reading only")

    def write_later(self, key: Hashable, statement: Statement) -> None:  # noqa: ARG002
        """Refuse. Raises StoreLocked."""
        raise StoreLocked("the store was opened for reading only")

    async def flush(self) -> None:
        """Do nothing: nothing is queued."""

    async def close(self) -> None:
        """Do nothing: nothing is open."""


class _NoMark(MarkFile):
    """Reads the mark, and leaves it as it is."""

    def write(self, mark: Mark) -> None:
        """Keep the mark in memory only."""
        self.mark = mark


class NoRoomForCopy(StoreFull):
    """A log whose disk is full is read from a copy on another one."""

    next_step = "Free disk space, or name a folder on another disk in the variable TMPDIR."


@contextlib.contextmanager
def _copied(path: Path) -> Iterator[Path]:
    """Yield the path of a copy: SQLite reads a WAL only where it can write beside it."""
    files = [path.with_name(f"{path.name}{suffix}") for suffix in ("", "-wal", ".mark")]
    files = [file for file in files if file.is_file()]
    size = sum(file.stat().st_size for file in files)
    with tempfile.TemporaryDirectory(dir=_roomy_folder(size + _BESIDE_BYTES)) as folder:
        for file in files:
            shutil.copyfile(file, Path(folder) / file.name)
        yield Path(folder) / path.name


def _roomy_folder(size: int) -> Path:
    """Return a folder for temporary files of `size` bytes. Raises NoRoomForCopy."""
    folders = []
    with contextlib.suppress(FileNotFoundError):  # raised if none of them can be written
        folders.append(Path(tempfile.gettempdir()))
    for folder in (*folders, _IN_MEMORY):
        if os.access(folder, os.W_OK) and shutil.disk_usage(folder).free >= size:
            return folder
    raise NoRoomForCopy(f"reading the log needs {size:,} bytes for a copy of it")


@asynccontextmanager
async def open_read_only(path: Path) -> AsyncIterator[Store]:
    """Open an existing store without its lock; every write raises StoreLocked.

    Raises DraftUnknown, StoreVersionUnknown, StoreCorrupt or StoreError, and
    StoreLocked while another process opens it for the first time, or was stopped as it opened it.
    """
    async with contextlib.AsyncExitStack() as stack:
        with typed_errors():
            tail.require_content(path)
            if not os.access(path.parent, os.W_OK):
                path = stack.enter_context(_copied(path))
            try:
                store = await _open(path)
            except StoreFull:
                store = await _open(stack.enter_context(_copied(path)))
            except StoreLocked:
                require_free(path)  # it names the process
                raise
        yield await stack.enter_async_context(store)


async def _open(path: Path) -> Store:
    with typed_errors():
        mark = _NoMark(path)
        reader = await schema.connect_checked(path, mark.mark.number)
        if reader is None:
            await (await Store.open(path)).close()
            reader = await schema.connect_reader(path)
        stack = contextlib.AsyncExitStack()
        stack.push_async_callback(reader.close)
        async with stack:
            mark.write(await tail.compared(reader, mark.mark))
            return Store(_NoCommit(), reader, stack.pop_all(), mark, path)
