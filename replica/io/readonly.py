"""A store opened read-only, beside the process that holds it.

The command line reads the log this way while another process follows it.
Nothing is written, not even to quarantine; a bad row is left out. The only
exception is a first opening that was cut short: it is completed here too
(DECISIONS D81).
"""

import contextlib
from collections.abc import AsyncIterator, Hashable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from replica.io import schema
from replica.io.commit import GroupCommit, Statement
from replica.io.disk import typed_errors
from replica.io.store import Store
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


@asynccontextmanager
async def open_read_only(path: Path) -> AsyncIterator[Store]:
    """Open an existing store without its lock; every write raises StoreLocked.

    Raises DraftUnknown, StoreVersionUnknown, StoreCorrupt or StoreError, and
    StoreLocked while another process opens it for the first time.
    """
    stack = contextlib.AsyncExitStack()
    with typed_errors():
        if not await schema.check(path):
            await (await Store.open(path)).close()
        reader = await schema.connect_reader(path)
        stack.push_async_callback(reader.close)
    async with Store(_NoCommit(), reader, stack) as store:
        yield store
