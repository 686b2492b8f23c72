"""Tables of the store, and the numbered steps that build them.

The number in the file's header is a thousand times the draft, plus the number of
steps applied: the first ones of those below. A step is never edited once
released; a change is a new step at the end. Other drafts and more steps than
ours are refused before anything is written (DECISIONS D80). Ids of membership
entries are listed twice (DECISIONS D78).
"""

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import quote

from replica.io.store import transaction
from replica.io.store.connection import Connection
from replica.io.store.transaction import Statement, WritingConnection
from replica.limits import DRAFT
from replica.refusals import DraftUnknown, StoreCorrupt, StoreReadOnly, StoreVersionUnknown

APPLICATION_ID = 0x416E7470
"""`Antp` in the file's header, which distinguishes a store from other databases."""

STEPS_MAX = 1_000
"""Limit of the steps of a draft; a file's number counts drafts in this unit."""

BUSY_TIMEOUT_S = 1.0
"""Seconds a truncating checkpoint waits for readers; nothing else waits."""

MIGRATIONS: Sequence[Sequence[str]] = (
    # 1: the log. `checksum` is the CRC-32 of the signature, because verifying signatures at
    # every load costs too much; header and body are checked by their digests.
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
            body_only INTEGER NOT NULL,
            why TEXT NOT NULL
        )
        """,
        "CREATE INDEX quarantine_conversation ON quarantine (conversation)",
        # The ids of membership entries once more, each with a CRC-32, so that a missing one is
        # noticed and named, whichever column or index of `entries` is damaged.
        """
        CREATE TABLE membership (
            conversation BLOB NOT NULL,
            id BLOB NOT NULL,
            checksum INTEGER NOT NULL,
            PRIMARY KEY (conversation, id)
        ) WITHOUT ROWID
        """,
        "CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
        # The acks of peers, one row per lane.
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
    # 2: rows without a digest of their own get a CRC-32 of their other columns; a row written
    # before has none.
    (
        "ALTER TABLE meta ADD COLUMN checksum INTEGER",
        "ALTER TABLE acks ADD COLUMN checksum INTEGER",
    ),
    # 3: second copies of small values, apart from the first.
    (
        "CREATE TABLE copies (key TEXT PRIMARY KEY, value BLOB NOT NULL, checksum INTEGER NOT NULL)"
        " WITHOUT ROWID",
    ),
    # 4: the tombstones of a hub, a row each in either table. `finished` is 1 once all is erased.
    tuple(
        f"CREATE TABLE {name} (conversation BLOB PRIMARY KEY, finished INTEGER NOT NULL,"
        " checksum INTEGER NOT NULL) WITHOUT ROWID"
        for name in ("tombstones", "tombstones_again")
    ),
    # 5: a CRC-32 of the conversation and id of a quarantined row; one from before has none.
    ("ALTER TABLE quarantine ADD COLUMN checksum INTEGER",),
    # 6: the keys that brought deleted conversations to a hub.
    ("CREATE TABLE bringers (conversation BLOB PRIMARY KEY, bringer BLOB NOT NULL) WITHOUT ROWID",),
)

REBUILD_INDEX = (
    "DROP INDEX entries_id",
    # A damaged index may have admitted an entry twice.
    "DELETE FROM entries WHERE rowid NOT IN "
    "(SELECT max(rowid) FROM entries GROUP BY conversation, id)",
    "CREATE UNIQUE INDEX entries_id ON entries (conversation, id)",
)
"""Statements that rebuild the index of `entries` from its rows."""


async def connect_writer(path: Path) -> WritingConnection:
    """Open the one connection that may write."""
    try:
        writer = WritingConnection(lambda: _connected(path, _WRITING, timeout=BUSY_TIMEOUT_S))
        await writer
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_READONLY:
            raise
        if os.access(path, os.W_OK):
            raise StoreCorrupt("the file itself is damaged: it states to be read-only") from error
        raise StoreReadOnly(f"{path} can't be written") from error
    return writer


async def connect_reader(path: Path) -> Connection:
    """Open a connection that can neither write nor checkpoint."""

    def connect() -> sqlite3.Connection:
        connection = _connected(_uri(path, "ro"), _READING, uri=True)
        # A damaged row may have the type text; reading it must not fail on its encoding.
        connection.text_factory = bytes
        return connection

    reader = Connection(connect)
    await reader
    return reader


_WRITING = ("journal_mode = WAL", "synchronous = FULL", "secure_delete = ON")
_READING = ("query_only = ON", "wal_autocheckpoint = 0")


def _connected(database: Path | str, pragmas: Sequence[str], **options: Any) -> sqlite3.Connection:
    connection: sqlite3.Connection = sqlite3.connect(database, isolation_level=None, **options)
    try:
        for one in pragmas:
            connection.execute(f"PRAGMA {one}")
    except BaseException:
        connection.close()
        raise
    return connection


def _uri(path: Path, mode: str) -> str:
    return f"file:{quote(os.fsencode(path))}?mode={mode}"


def pragma(connection: sqlite3.Connection, name: str) -> int:
    """Return the value of an integer pragma."""
    ((value,),) = connection.execute(f"PRAGMA {name}")
    return int(value)


def number() -> int:
    """Return the number of a store of this version."""
    return DRAFT * STEPS_MAX + len(MIGRATIONS)


async def connect_checked(path: Path, marked: int | None = None) -> Connection | None:
    """Open a reader of a store of a known version; return None for an incomplete file.

    `marked` is the number that the store's mark states (high_water.py): a file that
    states another unknown one is damaged.

    Nothing is written. An incomplete file is one whose first opening was cut
    short: steps are missing, or a half-written transaction has to be rolled
    back before anything can be read (`recover`). Raises DraftUnknown,
    StoreVersionUnknown or StoreCorrupt.
    """
    reader = await connect_reader(path)
    try:
        if await reader.run(partial(_is_complete, path, marked)):
            return reader
    except BaseException:
        await reader.close()
        raise
    await reader.close()
    return None


def _is_complete(path: Path, marked: int | None, reader: sqlite3.Connection) -> bool:
    try:
        return _has_all_steps(path, reader)
    except (DraftUnknown, StoreVersionUnknown) as error:
        if marked == number():
            raise StoreCorrupt(f"the file itself is damaged: {error.detail}") from error
        raise
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_READONLY:
            raise
        return False


def _has_all_steps(path: Path, reader: sqlite3.Connection) -> bool:
    stated = pragma(reader, "user_version")
    if stated == 0 and pragma(reader, "schema_version") == 0:
        return False
    if pragma(reader, "application_id") != APPLICATION_ID:
        raise StoreCorrupt(f"{path} is another program's database")
    draft, steps = divmod(stated, STEPS_MAX)
    if draft != DRAFT:
        # The first draft counted its steps alone.
        raise DraftUnknown(f"{path} is of draft {draft or 1}; this version knows draft {DRAFT}")
    if steps > len(MIGRATIONS):
        raise StoreVersionUnknown(
            f"{path} has had {steps} steps; this version knows {len(MIGRATIONS)}"
        )
    if steps < len(MIGRATIONS):
        return False
    if set(reader.execute(_FORM)) != _form_of(tuple(chain.from_iterable(MIGRATIONS))):
        # Each conversation would be unreadable for a column that has another name.
        raise StoreCorrupt("the file itself is damaged: its tables have another form")
    return True


_FORM = "SELECT CAST(name AS BLOB), CAST(sql AS BLOB) FROM sqlite_schema"


@cache
def _form_of(statements: tuple[str, ...]) -> frozenset[tuple[bytes, bytes | None]]:
    """Return the names and texts of the tables and indexes that the statements build."""
    with closing(sqlite3.connect(":memory:")) as connection:
        for statement in statements:
            connection.execute(statement)
        return frozenset(connection.execute(_FORM))


async def recover(path: Path) -> None:
    """Let SQLite roll back a transaction that a killed process left half-written.

    Changes nothing else, so it is safe on a file that is refused afterwards. The
    caller holds the store's lock. See DECISIONS D81.
    """
    # Reading triggers the rollback.
    connection = Connection(lambda: _connected(_uri(path, "rw"), ("user_version",), uri=True))
    await connection
    await connection.close()


def migrate(connection: sqlite3.Connection, steps: Sequence[Sequence[str]]) -> None:
    """Apply the missing steps, each in a transaction of its own.

    A caller that is cancelled meanwhile leaves the step whole or undone: SQLite's thread ends it.
    """
    for done in range(pragma(connection, "user_version") % STEPS_MAX, len(steps)):
        numbers = (
            f"PRAGMA application_id = {APPLICATION_ID}",
            f"PRAGMA user_version = {DRAFT * STEPS_MAX + done + 1}",
        )
        transaction.transact(connection, [Statement(text) for text in (*steps[done], *numbers)])
