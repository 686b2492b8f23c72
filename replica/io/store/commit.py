"""Group commit: one writing connection, one task, one sync for all queued writes.

SQLite before 3.51.3 can corrupt a WAL that two connections write or checkpoint
at once, so every write of a process goes through the one task here. The writes
queued while a transaction is being synced form the next transaction.
"""

import asyncio
import contextlib
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from replica.errors import ReplicaClosed, StoreError
from replica.io.files import DISK_ERRORS, store_error
from replica.io.process import Repeated, Worker, get_logger
from replica.io.store.transaction import Statement, WritingConnection, is_alone
from replica.refusals import StoreCorrupt

QUEUED_MAX = 1_024
"""Most queued writes; further callers wait and keep their own data."""
BATCH_BYTES_MAX = 8 * 1024 * 1024
LAZY_DELAY_S = 1.0
"""Longest delay of a lazy write. One statement alone never takes any along: a transaction of two
takes longer (DECISIONS D396)."""
TRUNCATE_AGAIN_S = 10.0
"""Delay of the next attempt to empty a WAL that a reader kept; each may wait for the reader."""

_log = get_logger()


@dataclass(frozen=True, slots=True)
class _Write:
    statements: Sequence[Statement]
    size_bytes: int = 0
    truncate: bool = False
    is_derived: bool = False
    done: asyncio.Future[None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class GroupCommit:
    """Runs statements in durable transactions; owns `connection` until closed."""

    def __init__(self, connection: WritingConnection, path: Path) -> None:
        """Start the task; `connection` is in autocommit mode, to the file `path`."""
        self._connection, self._path = connection, path
        self._lines = Repeated()
        self._queue: asyncio.Queue[_Write | None] = asyncio.Queue(QUEUED_MAX)
        self._lazy: dict[Hashable, Statement] = {}
        self._is_lazy_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._truncation: asyncio.TimerHandle | None = None
        self._closing = self._is_last = False
        self._turn = asyncio.Lock()
        """Held while a batch is collected and committed."""
        self._taken: list[_Write | None] = []
        """The write that waits for the turn, at most one."""
        self._worker = Worker(self._run, self._has_work, "store writer")

    async def write(
        self,
        statements: Sequence[Statement],
        *,
        size_bytes: int = 0,
        truncate: bool = False,
        is_derived: bool = False,
        at_once: bool = False,
    ) -> None:
        """Run the statements; return once they are durable.

        `truncate` also empties the WAL, so that no deleted data stays there; later,
        if a reader is in the way. What `is_derived` can be made again, and is refused alone
        where it does not fit. Writes of one turn of the event loop share a transaction; what is
        to begin `at_once` waits for no others, if the writer is idle, and so for two turns less.
        Raises StoreFull or another StoreError if the transaction was rolled back; all callers
        that shared it get the same error.
        """
        if self._closing or self._worker.has_ended:
            raise ReplicaClosed
        write = _Write(statements, size_bytes, truncate, is_derived)
        if at_once and not self._has_work() and not self._turn.locked():
            await self._write_at_once(write)
            return
        await self._queue.put(write)
        self._worker.go_on()
        if self._worker.has_ended:  # It ended while this caller waited for a free slot.
            raise ReplicaClosed
        await write.done

    async def _write_at_once(self, write: _Write) -> None:
        try:
            async with self._turn:
                await self._commit((write,))
        finally:
            refusal = write.done.exception()
        if refusal is not None:
            raise refusal

    def write_later(self, key: Hashable, statement: Statement) -> None:
        """Run the statement within LAZY_DELAY_S; a later one with `key` replaces it.

        It is lost without notice if the process is killed first.
        """
        if self._closing:
            raise ReplicaClosed
        self._lazy[key] = statement
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(LAZY_DELAY_S, self._wake)

    async def flush(self) -> None:
        """Make lazy writes durable now."""
        if self._lazy:
            self._is_lazy_due = True
            await self.write(())

    async def close(self) -> None:
        """Perform the queued writes, then close the connection."""
        if self._closing:
            return
        self._closing = self._is_lazy_due = True
        for timer in (self._timer, self._truncation):
            if timer is not None:
                timer.cancel()
        try:
            if not self._worker.has_ended:
                await self._queue.put(None)
            await self._worker.ended()
        finally:
            self._refuse_queued()
            await self._connection.close()

    def _wake(self) -> None:
        self._timer = None
        self._is_lazy_due = True
        self._queue_own(_Write(()))

    def _has_work(self) -> bool:
        return bool(self._taken) or not self._queue.empty()

    async def _run(self) -> None:
        while not self._is_last:
            if not self._taken:
                self._taken.append(await self._queue.get())
            async with self._turn:
                if self._taken:  # else an error that nobody foresaw has refused it
                    batch, self._is_last = self._collect()
                    await self._commit(batch)

    def _collect(self) -> tuple[list[_Write], bool]:
        """Return the taken write with all queued ones, and True once closing."""
        batch: list[_Write] = []
        size, item = 0, self._taken.pop()
        while item is not None:
            batch.append(item)
            size += item.size_bytes
            if size >= BATCH_BYTES_MAX or self._queue.empty():
                return batch, False
            item = self._queue.get_nowait()
        return batch, True

    async def _commit(self, batch: Sequence[_Write], *, with_lazy: bool = True) -> None:
        lazy: dict[Hashable, Statement] = {}
        statements = _merged([s for write in batch for s in write.statements])
        if with_lazy and (self._is_lazy_due or not is_alone(statements)):
            lazy, self._lazy, self._is_lazy_due = self._lazy, {}, False
            statements = _merged([*lazy.values(), *statements])
        try:
            if statements:
                await self._connection.transact(statements)
        except DISK_ERRORS as error:
            refusal = store_error(error, self._path)
            if lazy:
                # Lazy writes can be derived again; they must not prevent durable ones.
                await self._commit(batch, with_lazy=False)
                self._keep(lazy, refusal)
                return
            if isinstance(refusal, StoreCorrupt) and len(batch) > 1:
                # A damaged page fails the writes that touch it, not the whole batch.
                for write in batch:
                    await self._commit((write,))
                return
            if times := self._lines.due(refusal.reason):
                _log.warning(
                    "store write failed", reason=refusal.reason, detail=refusal.detail, times=times
                )
            derived = [write for write in batch if write.is_derived]
            rest = [write for write in batch if not write.is_derived]
            if derived and rest:
                _resolve(derived, refusal)
                await self._commit(rest)
                return
            _resolve(batch, refusal)
        except asyncio.CancelledError:
            _resolve(batch, StoreError("the store's writer was cancelled"))
            raise
        except BaseException:
            # A bug: no caller may wait for ever.
            _resolve(batch, StoreError("the store's writer stopped"))
            self._refuse_queued()
            raise
        else:
            try:
                if any(write.truncate for write in batch):
                    await self._truncate()
            finally:
                _resolve(batch, None)

    def _keep(self, lazy: dict[Hashable, Statement], refusal: StoreError) -> None:
        """Retry lazy writes with the next transaction, unless they touch a damaged page."""
        if isinstance(refusal, StoreCorrupt):
            _log.warning("lazy writes dropped", count=len(lazy), detail=refusal.detail)
        else:
            self._lazy = lazy | self._lazy
            self._is_lazy_due = True

    async def _truncate(self) -> None:
        kept = ""
        try:
            async with self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)") as cursor:
                row = await cursor.fetchone()
            if row is None or row[0]:
                kept = "a reader is in the way"
        except DISK_ERRORS as error:
            kept = str(error)
        if kept:
            _log.warning("write-ahead log kept", detail=kept)
            self._truncate_later()
        elif self._truncation is not None:
            self._truncation.cancel()
            self._truncation = None

    def _truncate_later(self) -> None:
        if self._truncation is None and not self._closing:  # closing empties it
            loop = asyncio.get_running_loop()
            self._truncation = loop.call_later(TRUNCATE_AGAIN_S, self._truncate_again)

    def _truncate_again(self) -> None:
        self._truncation = None
        self._truncate_later()  # until it succeeds, whatever becomes of this write
        self._queue_own(_Write((), truncate=True))

    def _queue_own(self, write: _Write) -> None:
        write.done.cancel()  # No caller awaits it.
        # A full queue means that a transaction is about to begin anyway.
        with contextlib.suppress(asyncio.QueueFull):
            self._queue.put_nowait(write)
        self._worker.go_on()

    def _refuse_queued(self) -> None:
        while self._has_work():
            write = self._taken.pop() if self._taken else self._queue.get_nowait()
            if write is not None:
                _resolve((write,), ReplicaClosed())


def _merged(statements: Sequence[Statement]) -> list[Statement]:
    """Merge adjacent statements of the same SQL."""
    merged: list[Statement] = []
    for statement in statements:
        if merged and merged[-1].sql == statement.sql:
            merged[-1] = Statement(statement.sql, [*merged[-1].rows, *statement.rows])
        else:
            merged.append(statement)
    return merged


def _resolve(batch: Sequence[_Write], refusal: StoreError | None) -> None:
    for write in batch:
        if write.done.done():  # Its caller was cancelled; its rows are written anyway.
            continue
        if refusal is None:
            write.done.set_result(None)
        else:
            # One instance each: a traceback belongs to one caller.
            write.done.set_exception(type(refusal)(refusal.detail))
