"""Damage to files, and limits of disks, for tests."""

import resource
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path

import aiosqlite

from replica.io.store import schema
from replica.io.store.sqlite_pages import PAGE_BYTES
from replica.io.store.store import Store
from replica.refusals import StoreFull
from tests.support.writers import Writer


def flip_byte(path: Path, content: bytes, *, occurrence: int = 0) -> None:
    """Flip one bit inside the given occurrence of `content` in the file."""
    data = bytearray(path.read_bytes())
    at = -1
    for _ in range(occurrence + 1):
        at = data.index(content, at + 1)
    data[at + len(content) // 2] ^= 1
    path.write_bytes(data)


def overwrite(path: Path, at: int, content: bytes) -> None:
    """Put `content` in place of the bytes from `at` on."""
    data = bytearray(path.read_bytes())
    data[at : at + len(content)] = content
    path.write_bytes(data)


def break_page(database: Path, content: bytes) -> None:
    """Break the link of the overflow page that holds `content`, so that reading it fails."""
    data = bytearray(database.read_bytes())
    page_bytes = int.from_bytes(data[16:18])
    start = data.index(content) // page_bytes * page_bytes
    data[start : start + 4] = b"\xff" * 4
    database.write_bytes(data)


def wal_commits(database: Path) -> int:
    """Count the transactions in a store's WAL (sqlite.org/fileformat.html, section 4)."""
    data = database.with_name(f"{database.name}-wal").read_bytes()
    page_bytes, salts = int.from_bytes(data[8:12]), data[16:24]
    starts = range(32, len(data), 24 + page_bytes)
    frames = [data[at : at + 24] for at in starts]
    # A commit is a frame that states the size of the database after it.
    return sum(1 for frame in frames if frame[8:16] == salts and any(frame[4:8]))


def query(database: Path, sql: str, *parameters: object) -> list[tuple[object, ...]]:
    """Run SQL on a connection that shares nothing with the store's own."""
    connection = sqlite3.connect(database, isolation_level=None)
    try:
        return connection.execute(sql, parameters).fetchall()
    finally:
        connection.close()


@asynccontextmanager
async def write_locked(store: Store) -> AsyncIterator[None]:
    """Delay all commits of the store until the block ends, as on a slow disk."""
    writer = store._commit._connection
    async with writer.execute("PRAGMA database_list") as cursor:
        ((_, _, database),) = await cursor.fetchall()
    await writer.execute("PRAGMA busy_timeout = 60000")
    # A thread of its own waits for the lock: who holds it may need the event loop to commit.
    other = await aiosqlite.connect(database, isolation_level=None)
    try:
        await other.execute("BEGIN IMMEDIATE")
        yield
    finally:
        await other.close()
        await writer.execute(f"PRAGMA busy_timeout = {round(schema.BUSY_TIMEOUT_S * 1000)}")


@asynccontextmanager
async def full_disk(store: Store) -> AsyncIterator[None]:
    """Let SQLite refuse further pages in the block, as on a full disk."""
    writer = store._commit._connection
    pages = await writer.run(partial(schema.pragma, name="page_count"))
    await writer.execute(f"PRAGMA max_page_count = {pages}")
    try:
        # Use up the free space of existing pages.
        with suppress(StoreFull):
            for number in count():
                await store.append([Writer(f"filler {number}".encode()).genesis()])
        yield
    finally:
        await writer.execute(f"PRAGMA max_page_count = {2**32 - 2}")


def damage_root(path: Path, table: str) -> None:
    """Damage the first page of a table, which is all of a small one."""
    (root,) = query(path, "SELECT rootpage FROM sqlite_schema WHERE name = ?", table)
    overwrite(path, (int(root[0]) - 1) * PAGE_BYTES, b"\xff" * 64)


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Let the kernel refuse to grow any file of this process beyond `size` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
