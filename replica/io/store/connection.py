"""A connection to an SQLite file, whose thread never keeps a program from ending."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Self, TypeVar

import aiosqlite

from replica.io.process import to_the_end

ROWS_MAX = 64
"""Rows that one hop to the thread brings to an iteration."""
Read = Callable[..., Awaitable[list[tuple[Any, ...]]]]
"""Returns the rows that a statement selects, given its parameters. Raises StoreError."""
_Result = TypeVar("_Result")


class Connection(aiosqlite.Connection):
    """Each call is made by a thread, which serves the connection until it is closed.

    An event loop may be closed with connections open, and nobody can close them then. Python
    waits for threads as it ends, unless they are daemons. SQLite loses nothing by it: what was
    committed is durable, and a transaction in progress is not.
    """

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        """Use `await` to call `connect` in the thread."""
        super().__init__(connect, iter_chunk_size=ROWS_MAX)
        self._thread.daemon = True

    async def _connect(self) -> Self:
        """Connect, also where the caller is cancelled; it is closed again then.

        The thread would hand over the connection later, to a loop that may be closed by then.
        """
        try:
            await to_the_end(super()._connect())
        except asyncio.CancelledError:
            if self._running:
                await to_the_end(self.close())
            raise
        return self

    async def run(self, work: Callable[[sqlite3.Connection], _Result]) -> _Result:
        """Call `work` in the thread: a hop of its own costs more than most statements."""
        done: _Result = await self._execute(partial(work, self._conn))  # type: ignore[no-untyped-call]
        return done
