"""The thread that writes checkpoints (spec/08-checkpoint §3).

A file system may take seconds for what the engine must not wait for. So the writer decides
which pieces are missing, and asks the engine's thread for the bytes of one after the other:
each is copied between two steps, and one is in memory at a time.
"""

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

import structlog

from model_host.errors import CheckpointDropped, CheckpointError
from model_host.kv import Bytes, PagePool, PageStore, UnpinnedSource
from replica.errors import HostError
from replica.ids import short
from replica.io import Repeated

log = structlog.get_logger()

SAVINGS_MAX = 64
"""Most checkpoints that wait to be written; of one more, the next turn writes the tokens."""

Result = TypeVar("Result")
Post = Callable[[Callable[[], None]], None]


@dataclass(frozen=True, slots=True)
class Saving:
    """A context to be stored, as far as it is in memory."""

    conversation: bytes
    namespace: bytes
    seal: bytes
    generation: bytes
    ids: Sequence[int]


@dataclass(slots=True)
class WriterCounters:
    """Counts of checkpoints since start."""

    written: int = 0
    failed: int = 0
    dropped: int = 0
    """Not written, for a full queue, evicted pages or the end of the host."""


class CheckpointWriter:
    """Writes checkpoints one after the other, in the order they were asked for."""

    def __init__(self, pool: PagePool, pages: PageStore, post: Post) -> None:
        """Read from `pool`, in calls that `post` hands to the engine's thread."""
        self.counters = WriterCounters()
        self._lines = Repeated()
        self._pool = pool
        self._pages = pages
        self._post = post
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._waiting = 0  # guarded by the lock, as are the next three
        self._is_stopping = False
        self._is_abandoned = False
        self._asked: Future[object] | None = None
        self._has_ended = False
        self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)

    @property
    def is_running(self) -> bool:
        """Say whether something may still be written."""
        return self._thread.is_alive() and not self._has_ended

    # --- life -------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread once all that waits is written; then a last call is posted."""
        with self._lock:
            self._is_stopping = True
            self._queue.put(None)

    def abandon(self) -> None:
        """Drop what is not written yet. The engine's thread calls this, and performs no more."""
        with self._lock:
            self._is_stopping = self._is_abandoned = True
            asked, self._asked = self._asked, None
        if asked is not None:
            asked.set_exception(CheckpointDropped("The host stops."))
        self._queue.put(None)

    def join(self) -> None:
        """Wait for the end of the thread."""
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            while (work := self._queue.get()) is not None:
                work()
        except BaseException as error:  # a bug: it ends the host
            log.exception("the writer of checkpoints failed")
            self._fail(error)
        self._has_ended = True
        self._post(lambda: None)

    def _fail(self, error: BaseException) -> None:
        def fail() -> None:
            raise error

        self._post(fail)

    # --- work -------------------------------------------------------------------------

    def save(self, saving: Saving) -> None:
        """Write a checkpoint soon; a failure is counted and logged. Any thread may call this."""
        with self._lock:
            is_refused = self._waiting >= SAVINGS_MAX or self._is_stopping
            self._waiting += not is_refused
            self.counters.dropped += is_refused
        if is_refused:
            log.info("checkpoint dropped", conversation=short(saving.conversation))
            return
        self._queue.put(lambda: self._save(saving))

    def call(self, work: Callable[[], Result]) -> "Future[Result]":
        """Perform a call after all checkpoints asked for before. Any thread may call this."""
        future: Future[Result] = Future()

        def perform() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(work())
            except Exception as error:  # noqa: BLE001  # raised at the caller
                future.set_exception(error)

        with self._lock:
            if self._is_stopping or not self.is_running:
                raise HostError("The engine has stopped.")
            self._queue.put(perform)
        return future

    def _save(self, saving: Saving) -> None:
        with self._lock:
            self._waiting -= 1
        try:
            source = self._in_engine(
                lambda: self._pool.cached.unpinned(saving.ids, saving.conversation)
            )
            part = saving.ids[: source.tokens]
            written = self._pages.save(
                saving.conversation,
                saving.namespace,
                saving.seal,
                saving.generation,
                part,
                _Asking(source, self),
            )
        except CheckpointDropped as error:
            self.counters.dropped += 1
            log.info("checkpoint dropped", detail=error.detail)
        except CheckpointError as error:
            self.counters.failed += 1
            if times := self._lines.due(error.reason):
                log.warning(
                    "checkpoint not written", reason=error.reason, detail=error.detail, times=times
                )
        else:
            if written is not None:
                self.counters.written += 1
                log.info(
                    "checkpoint", conversation=short(saving.conversation), tokens=written.tokens
                )

    def _in_engine(self, work: Callable[[], Result]) -> Result:
        """Perform a call in the engine's thread, between two steps; return its result.

        Raises CheckpointDropped if the thread ends first.
        """
        future: Future[Result] = Future()
        with self._lock:
            if self._is_abandoned:
                raise CheckpointDropped("The host stops.")
            self._asked = future  # type: ignore[assignment]  # only failed through this name

        def perform() -> None:
            with self._lock:
                self._asked = None
            try:
                future.set_result(work())
            except Exception as error:  # noqa: BLE001  # raised in the writer's thread
                future.set_exception(error)

        self._post(perform)
        return future.result()

    def read(self, source: UnpinnedSource, start: int, stop: int) -> Bytes:
        """Copy positions in the engine's thread. Raises CheckpointDropped."""
        return self._in_engine(lambda: source.read(start, stop))


class _Asking:
    """A PageSource that is read in the engine's thread."""

    def __init__(self, source: UnpinnedSource, writer: CheckpointWriter) -> None:
        self._source = source
        self._writer = writer

    @property
    def tokens(self) -> int:
        return self._source.tokens

    @property
    def bytes_per_token(self) -> int:
        return self._source.bytes_per_token

    def read(self, start: int, stop: int) -> Bytes:
        return self._writer.read(self._source, start, stop)
