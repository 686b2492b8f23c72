"""What tests do to files behind the back of the code that owns them."""

import sqlite3
from pathlib import Path


def flip_byte(path: Path, content: bytes, *, occurrence: int = 0) -> None:
    """Flip one bit inside the given occurrence of `content` in the file."""
    data = bytearray(path.read_bytes())
    at = -1
    for _ in range(occurrence + 1):
        at = data.index(content, at + 1)
    data[at + len(content) // 2] ^= 1
    path.write_bytes(data)


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
