"""A store opened read-only, beside the process that holds it.

The command line reads the log this way while another process follows it, or
where the folder can't be written.
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

from replica.io import schema, tail
from replica.io.commit import GroupCommit
from replica.io.disk import typed_errors
from replica.io.high_water import Mark, MarkFile
from replica.io.store import Store
from replica.io.transaction import Statement
from replica.refusals import StoreLocked


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


@contextlib.contextmanager
def _copied(path: Path) -> Iterator[Path]:
    """Yield the path of a copy: SQLite reads a WAL only where it can write beside it."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        for suffix in ("", "-wal", ".mark"):
            file = path.with_name(f"{path.name}{suffix}")
            if file.exists():
                shutil.copyfile(file, f"{copy}{suffix}")
        yield copy


@asynccontextmanager
async def open_read_only(path: Path) -> AsyncIterator[Store]:
    """Open an existing store without its lock; every write raises StoreLocked.

    Raises DraftUnknown, StoreVersionUnknown, StoreCorrupt or StoreError, and
    StoreLocked while another process opens it for the first time.
    """
    stack = contextlib.AsyncExitStack()
    with typed_errors():
        tail.require_content(path)
        if not os.access(path.parent, os.W_OK):
            path = stack.enter_context(_copied(path))
        mark = _NoMark(path)
        if not await schema.check(path, mark.mark.number):
            await (await Store.open(path)).close()
        mark.write(await tail.compared(path, mark.mark))
        reader = await schema.connect_reader(path)
        stack.push_async_callback(reader.close)
    async with Store(_NoCommit(), reader, stack, mark) as store:
        yield store
