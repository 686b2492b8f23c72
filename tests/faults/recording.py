"""What a process asks of SQLite: recorded on a sound folder, asked again of a damaged one.

A process knows a database by the answers to its statements alone. If all of them are the
answers of the sound folder, it does the same, statement for statement, and the damage is
harmless.

The calls between the first connection and the close of the last are a session. Where no session
changes a file, an answer depends on the files and the statement alone, so a session that makes
no new statement is left out: as long as the files of the damaged folder stay unchanged too.
"""

import marshal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REFUSALS = (sqlite3.Error, UnicodeDecodeError)
"""What SQLite's module raises; the last if a message repeats damaged text."""
_MARSHAL = 2
"""A version that writes equal values as equal bytes, and 1 and 1.0 as different ones."""

Call = tuple[str, int, int, tuple[Any, ...], dict[str, Any], bytes]
"""Method, number of the connection, number of the cursor, arguments, and the answer."""


def _answer(method: str, result: object) -> bytes:
    """Return what a call answered, as bytes; only fetches answer anything."""
    return marshal.dumps(result, _MARSHAL) if method.startswith("fetch") else b""


def _refusal(error: Exception) -> bytes:
    return f"{type(error).__name__} {getattr(error, 'sqlite_errorcode', '')}".encode()


@dataclass(slots=True)
class Recording:
    """The calls of one run to one database, in their order."""

    database: Path
    sessions: list[list[Call]] = field(default_factory=list)
    connections: int = 0
    cursors: int = 0
    _open: int = 0
    _needed: list[list[Call]] = field(default_factory=list)
    _is_constant: bool = True
    _before: dict[str, bytes] = field(default_factory=dict)
    _after: dict[str, int] = field(default_factory=dict)

    def begin(self) -> None:
        """Note a connection that is opened."""
        if not self._open:
            self.sessions.append([])
        self._open += 1

    def end(self) -> None:
        """Note a connection that is closed."""
        self._open -= 1
        self._is_constant &= bool(self._open) or self._files() == self._before

    def note(
        self,
        method: str,
        connection: int,
        cursor: int,
        arguments: tuple[Any, ...],
        call: Callable[[], Any],
        **keywords: Any,
    ) -> Any:
        """Make a call, and record it with its answer or refusal."""
        made = (method, connection, cursor, arguments, keywords)
        calls = self.sessions[-1]
        try:
            result = call()
        except REFUSALS as error:
            calls.append((*made, _refusal(error)))
            raise
        calls.append((*made, _answer(method, result)))
        return result

    def start(self) -> None:
        """Note the files before the first call."""
        self._before = self._files()

    def finish(self) -> None:
        """Note the files after the last call, and which sessions say anything new."""
        assert not self._open, "all connections are closed"
        self._after = {name: len(data) for name, data in self._files().items()}
        known: set[Any] = set()
        for session in self.sessions:
            said = _statements(session)
            if not self._is_constant or not said <= known:
                self._needed.append(session)
            known |= said

    def is_answered_alike(self) -> bool:
        """Make the calls again, on other files; say whether each is answered as before."""
        before = self._files()
        for session in self._needed:
            if not _is_answered_alike(session):
                return False
            if self._is_constant and self._files() != before:
                return False
        return {name: len(data) for name, data in self._files().items()} == self._after

    def _files(self) -> dict[str, bytes]:
        """Return the files that SQLite reads; an empty one, which a reader leaves, says nothing."""
        found: dict[str, bytes] = {}
        for ending in ("", "-wal", "-journal"):
            with suppress(FileNotFoundError):
                found[ending] = self.database.with_name(self.database.name + ending).read_bytes()
        return {ending: data for ending, data in found.items() if data}


def _statements(session: list[Call]) -> set[Any]:
    """Return what the calls of each connection and of each cursor are, without their numbers."""
    by_cursor: dict[tuple[int, int], list[Any]] = {}
    for method, connection, cursor, arguments, keywords, answer in session:
        made = (method, repr(arguments), repr(keywords), answer)
        by_cursor.setdefault((connection, cursor), []).append(made)
    return {tuple(made) for made in by_cursor.values()}


def _is_answered_alike(session: list[Call]) -> bool:
    connections: dict[int, sqlite3.Connection] = {}
    cursors: dict[int, sqlite3.Cursor] = {}
    try:
        return all(_answered(call, connections, cursors) == call[-1] for call in session)
    finally:
        cursors.clear()
        for connection in connections.values():
            with suppress(*REFUSALS):
                connection.close()


def _answered(
    call: Call, connections: dict[int, sqlite3.Connection], cursors: dict[int, sqlite3.Cursor]
) -> bytes:
    method, connection, cursor, arguments, keywords, _ = call
    result = None
    try:
        if method == "connect":
            connections[connection] = sqlite3.connect(*arguments, **keywords)
        elif method == "set":
            setattr(connections[connection], *arguments)
        elif method == "close":
            connections[connection].close()
        elif method == "cursor":
            cursors[cursor] = connections[connection].cursor()
        elif method == "drop":
            cursors.pop(cursor, None)
        else:
            result = getattr(cursors[cursor], method)(*arguments)
    except REFUSALS as error:
        return _refusal(error)
    return _answer(method, result)


@contextmanager
def recording(database: Path) -> Iterator[Recording]:
    """Record the calls to a database that are made in the block, by one thread or in turns."""
    record, real = Recording(database), sqlite3.connect

    def connect(database: Any, **keywords: Any) -> sqlite3.Connection:
        if str(record.database) not in str(database):
            return real(database, **keywords)
        record.begin()
        number = record.connections = record.connections + 1

        def open_() -> sqlite3.Connection:
            return real(database, **keywords, factory=_Connection)

        opened = record.note("connect", number, 0, (database,), open_, **keywords)
        object.__setattr__(opened, "record", record)
        object.__setattr__(opened, "number", number)
        return opened

    record.start()
    sqlite3.connect = connect
    try:
        yield record
    finally:
        sqlite3.connect = real
    record.finish()


class _Connection(sqlite3.Connection):
    record: Recording
    number: int

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        self.record.note("set", self.number, 0, (name, value), lambda: None)

    def cursor(self, *_: Any) -> "_Cursor":
        self.record.cursors += 1
        cursor = super().cursor(_Cursor)
        cursor.record, cursor.place = self.record, (self.number, self.record.cursors)
        self.record.note("cursor", *cursor.place, (), lambda: None)
        return cursor

    def execute(self, *arguments: Any) -> "_Cursor":
        return self.cursor().execute(*arguments)

    def executemany(self, sql: str, rows: Any) -> "_Cursor":
        return self.cursor().executemany(sql, rows)

    def close(self) -> None:
        self.record.note("close", self.number, 0, (), super().close)
        self.record.end()


class _Cursor(sqlite3.Cursor):
    record: Recording
    place: tuple[int, int]

    def execute(self, *arguments: Any) -> "_Cursor":
        self.record.note("execute", *self.place, arguments, lambda: self._none(arguments))
        return self

    def _none(self, arguments: tuple[Any, ...]) -> None:
        super().execute(*arguments)

    def executemany(self, sql: str, rows: Any) -> "_Cursor":
        kept = list(rows)
        many = super().executemany
        self.record.note("executemany", *self.place, (sql, kept), lambda: many(sql, kept))
        return self

    def fetchone(self) -> Any:
        return self.record.note("fetchone", *self.place, (), super().fetchone)

    def fetchmany(self, *size: Any) -> Any:
        fetch = super().fetchmany
        return self.record.note("fetchmany", *self.place, size, lambda: fetch(*size))

    def fetchall(self) -> Any:
        return self.record.note("fetchall", *self.place, (), super().fetchall)

    def __del__(self) -> None:
        self.record.note("drop", *self.place, (), lambda: None)
