"""A connection that runs a transaction in one hop to SQLite's thread, or leaves no trace of it."""

import re
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from replica.io.store.connection import Connection

JOINED_ROWS_MAX = 64
"""Rows one INSERT takes: each number of rows is a text that SQLite keeps prepared."""
_ONE_ROW = re.compile(r"VALUES (\(\?(?:, \?)*\))")


@dataclass(frozen=True, slots=True)
class Statement:
    """One SQL text and the rows it is run with; without rows it is run once."""

    sql: str
    rows: Sequence[tuple[object, ...]] = ()

    def joined(self) -> tuple[str, list[object]] | None:
        """Return an INSERT of a few rows as one SQL text and its values; None for all others."""
        if not 0 < len(self.rows) <= JOINED_ROWS_MAX:
            return None
        text, count = _ONE_ROW.subn(
            lambda match: "VALUES " + ", ".join([match[1]] * len(self.rows)), self.sql
        )
        return (text, [value for row in self.rows for value in row]) if count == 1 else None

    def run(self, connection: sqlite3.Connection) -> None:
        """Run it. Raises sqlite3.Error."""
        if (joined := self.joined()) is not None:
            connection.execute(*joined)
        elif self.rows:
            connection.executemany(self.sql, self.rows)
        else:
            connection.execute(self.sql)


class WritingConnection(Connection):
    """A connection in autocommit mode, which begins transactions by itself."""

    async def transact(self, statements: Sequence[Statement]) -> None:
        """Run all statements and make them durable, or none. Raises sqlite3.Error.

        It is one function of the thread, since no statement may run once another has failed:
        SQLite ends the transaction after some errors, and the next would be one of its own.
        """
        await self.run(lambda connection: transact(connection, statements))


def transact(connection: sqlite3.Connection, statements: Sequence[Statement]) -> None:
    """Run all statements, or none. Raises sqlite3.Error."""
    if is_alone(statements):
        statements[0].run(connection)  # outside a transaction, one statement is one
        return
    connection.execute("BEGIN")
    try:
        for statement in statements:
            statement.run(connection)
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:  # not after all errors
            connection.execute("ROLLBACK")


def is_alone(statements: Sequence[Statement]) -> bool:
    """Say whether statements need no transaction: one that is run once."""
    return len(statements) == 1 and statements[0].joined() is not None
