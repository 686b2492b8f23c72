"""Tables of the store, and the numbered steps that build them.

A store of version n has had the first n steps. A step is never edited once
released; a change is a new step at the end. Versions above ours are refused
before anything is written.
"""

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import aiosqlite

from replica.refusals import StoreCorrupt, StoreVersionUnknown

APPLICATION_ID = 0x416E7470
"""`Antp` in the file's header, so that another program's database is not taken for ours."""

BUSY_TIMEOUT_S = 1.0
"""How long a truncating checkpoint waits for readers; nothing else ever has to."""

MIGRATIONS: Sequence[Sequence[str]] = (
    # 1: the log. `checksum` is the CRC-32 of the signature, whose true check costs too much
    # for every load; header and body are checked by their own digests.
    (
        """
        CREATE TABLE entries (
            conversation BLOB NOT NULL,
            id BLOB NOT NULL,
            header BLOB NOT NULL,
            signature BLOB NOT NULL,
            checksum INTEGER NOT NULL,
            body BLOB
        )
        """,
        "CREATE UNIQUE INDEX entries_id ON entries (conversation, id)",
        """
        CREATE TABLE quarantine (
            conversation BLOB NOT NULL,
            id BLOB NOT NULL,
            header BLOB,
            signature BLOB,
            body BLOB,
            why TEXT NOT NULL
        )
        """,
        "CREATE INDEX quarantine_conversation ON quarantine (conversation)",
        "CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
    ),
    # 2: what peers have acknowledged, one row per lane.
    (
        """
        CREATE TABLE acks (
            conversation BLOB NOT NULL,
            peer BLOB NOT NULL,
            lane BLOB NOT NULL,
            head BLOB NOT NULL,
            acked_ms INTEGER NOT NULL,
            PRIMARY KEY (conversation, peer, lane)
        ) WITHOUT ROWID
        """,
    ),
)

REBUILD_INDEX = (
    "DROP INDEX entries_id",
    # A damaged index may have let an entry in twice.
    "DELETE FROM entries WHERE rowid NOT IN "
    "(SELECT max(rowid) FROM entries GROUP BY conversation, id)",
    "CREATE UNIQUE INDEX entries_id ON entries (conversation, id)",
)
"""Statements that derive the index of `entries` anew from its rows."""


async def connect_writer(path: Path) -> aiosqlite.Connection:
    """Open the one connection that may write; transactions are begun by hand."""
    connection = await aiosqlite.connect(path, isolation_level=None, timeout=BUSY_TIMEOUT_S)
    try:
        await connection.execute("PRAGMA journal_mode = WAL")
        await connection.execute("PRAGMA synchronous = FULL")
        await connection.execute("PRAGMA secure_delete = ON")
    except BaseException:
        await connection.close()
        raise
    return connection


async def connect_reader(path: Path) -> aiosqlite.Connection:
    """Open a connection that can neither write nor checkpoint."""
    uri = f"file:{quote(str(path))}?mode=ro"
    connection = await aiosqlite.connect(uri, uri=True, isolation_level=None)
    try:
        await connection.execute("PRAGMA query_only = ON")
        await connection.execute("PRAGMA wal_autocheckpoint = 0")
        # A damaged row may claim to hold text; reading it must not fail on its encoding.
        connection.text_factory = bytes
    except BaseException:
        await connection.close()
        raise
    return connection


async def pragma(connection: aiosqlite.Connection, name: str) -> int:
    """Return the value of an integer pragma."""
    async with connection.execute(f"PRAGMA {name}") as cursor:
        row = await cursor.fetchone()
    assert row is not None, f"{name} has a value"
    return int(row[0])


async def check(path: Path) -> None:
    """Refuse a file that is not a store or newer than this version, without touching it.

    Raises StoreVersionUnknown or StoreCorrupt.
    """
    reader = await connect_reader(path)
    try:
        version = await pragma(reader, "user_version")
        if version > len(MIGRATIONS):
            raise StoreVersionUnknown(
                f"{path} has schema version {version}; this version knows {len(MIGRATIONS)}"
            )
        used = await pragma(reader, "schema_version") != 0
        if used and await pragma(reader, "application_id") != APPLICATION_ID:
            raise StoreCorrupt(f"{path} is another program's database")
    finally:
        await reader.close()


async def migrate(
    connection: aiosqlite.Connection, steps: Sequence[Sequence[str]] = MIGRATIONS
) -> None:
    """Apply the steps the store has not had yet, each in a transaction of its own."""
    for version in range(await pragma(connection, "user_version"), len(steps)):
        await connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in steps[version]:
                await connection.execute(statement)
            await connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            await connection.execute(f"PRAGMA user_version = {version + 1}")
            await connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                await connection.execute("ROLLBACK")
