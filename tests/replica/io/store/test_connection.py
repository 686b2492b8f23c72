"""Connections to an SQLite file that are cancelled while they are opened."""

import asyncio
import sqlite3
import threading
from pathlib import Path

import pytest

from replica.io.store.connection import Connection


async def test_a_connection_that_is_cancelled_while_it_opens_is_closed_behind_that(
    tmp_path: Path,
) -> None:
    loop, begun, go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    opened = list[sqlite3.Connection]()

    def connect() -> sqlite3.Connection:
        loop.call_soon_threadsafe(begun.set)
        go_on.wait()
        opened.append(sqlite3.connect(tmp_path / "s.db", check_same_thread=False))
        return opened[0]

    async def open_it() -> None:
        await connection

    connection = Connection(connect)
    opening = asyncio.create_task(open_it())
    await begun.wait()
    opening.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    is_early = opening.done()  # the thread would tell a loop that may be closed by then
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await opening
    connection._thread.join(20)
    assert (is_early, connection._thread.is_alive()) == (False, False)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        opened[0].execute("SELECT 1")
