"""The thread that computes: the batcher, its pages and its store (spec/07-host §5).

The event loop never waits for a computation. It hands jobs and calls over to the thread,
which performs them between two steps, and it receives the events of each step in one go.
"""

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import structlog

from model_host.batcher import BatchCounters, Batcher, Events
from model_host.engine_api import Engine
from model_host.errors import CheckpointError
from model_host.job import Ended, Event, Job
from model_host.kv import CachedSource, Manifest, PagePool, PageStore
from replica.errors import HostError
from replica.ids import short

log = structlog.get_logger()

Result = TypeVar("Result")
Receive = Callable[[Event], None]


class EngineThread:
    """One engine, its pages in memory and in the store, in a thread of their own."""

    def __init__(self, engine: Engine, pool: PagePool, pages: PageStore) -> None:
        """Use the engine, pool and store in the thread only, once `start` is called."""
        self.engine = engine
        self.checkpoints = 0
        self.checkpoint_failures = 0
        self._pool = pool
        self._pages = pages
        self._batcher = Batcher(engine, pool, pages, time.monotonic)
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._posted: Events = []  # guarded by the lock
        self._receivers: dict[Job, tuple[Receive, asyncio.Future[None]]] = {}
        self._waiting: set[asyncio.Future[Any]] = set()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._is_stopping = False

    @property
    def counters(self) -> BatchCounters:
        """Counts of the batcher; read while it runs, they may be a step old."""
        return self._batcher.counters

    # --- life -------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread; results and events go to the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._thread.start()

    async def failed(self) -> None:
        """Raise the error that ended the thread; wait for ever if it runs."""
        await asyncio.shield(self._ended)

    def stop(self) -> None:
        """End the thread after its present step; jobs in progress stay unfinished."""
        self._is_stopping = True
        self._calls.put(None)

    async def close(self) -> None:
        """Stop, and wait for the end of the thread."""
        self.stop()
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            while not self._is_stopping:
                self._perform_calls()
                if not (self._batcher.is_idle or self._is_stopping):
                    self._post(self._batcher.step())
        except BaseException as caught:  # a bug: whoever waits for the thread is told
            log.exception("the engine thread failed")
            error = caught
        self._loop.call_soon_threadsafe(self._end, error)

    def _perform_calls(self) -> None:
        """Perform the calls queued; wait for one while there is nothing to compute."""
        try:
            call = self._calls.get(block=self._batcher.is_idle)
            while call is not None:
                call()
                call = self._calls.get(block=False)
        except queue.Empty:
            pass

    def _end(self, error: BaseException | None) -> None:
        """Fail everything that waits for the thread."""
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_exception(HostError("The engine has stopped."))
        if error is not None:
            self._ended.set_exception(error)

    @contextmanager
    def _awaited(self) -> Iterator["asyncio.Future[Any]"]:
        """Return a future that fails if the thread ends first."""
        waiting: asyncio.Future[Any] = self._loop.create_future()
        if not self._thread.is_alive():
            raise HostError("The engine has stopped.")
        self._waiting.add(waiting)
        try:
            yield waiting
        finally:
            self._waiting.discard(waiting)

    # --- runs -------------------------------------------------------------------------

    async def compute(self, job: Job, receive: Receive) -> None:
        """Compute a run to its end; `receive` is called with its events, on the event loop.

        Raises what `receive` raises, and HostError if the thread ends.
        """
        with self._awaited() as done:
            self._receivers[job] = (receive, done)
            self._calls.put(lambda: self._batcher.add(job))
            try:
                await done
            finally:
                del self._receivers[job]
                job.cancel()  # has no effect on a run that has ended

    def _post(self, events: Events) -> None:
        with self._lock:
            is_awaited = bool(self._posted)
            self._posted += events
        if events and not is_awaited:
            self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        with self._lock:
            events, self._posted = self._posted, []
        for job, event in events:
            receive, done = self._receivers.get(job, (None, None))
            if receive is None or done is None or done.done():
                continue  # its caller has gone
            try:
                receive(event)
            except Exception as error:  # noqa: BLE001  # it fails the call of `compute`
                done.set_exception(error)
            else:
                if isinstance(event, Ended):
                    done.set_result(None)

    # --- derived state ----------------------------------------------------------------

    async def _call(self, work: Callable[[], Result]) -> Result:
        """Perform a call in the thread, between two steps."""
        with self._awaited() as done:

            def settle(result: Result | None, error: Exception | None) -> None:
                if done.done():
                    return
                if error is not None:
                    done.set_exception(error)
                else:
                    done.set_result(result)

            def perform() -> None:
                try:
                    result = work()
                except Exception as error:  # noqa: BLE001  # raised at the caller
                    self._loop.call_soon_threadsafe(settle, None, error)
                else:
                    self._loop.call_soon_threadsafe(settle, result, None)

            self._calls.put(perform)
            result: Result = await done
            return result

    async def checkpoint(
        self,
        conversation: bytes,
        namespace: bytes,
        seal: bytes,
        generation: bytes,
        ids: Sequence[int],
    ) -> None:
        """Store the part of a context that is in memory; a failure is counted and logged."""
        await self._call(partial(self._save, conversation, namespace, seal, generation, ids))

    def _save(
        self,
        conversation: bytes,
        namespace: bytes,
        seal: bytes,
        generation: bytes,
        ids: Sequence[int],
    ) -> None:
        with self._pool.cached.reading(ids, conversation) as reading:
            if not reading.tokens:
                return
            source = CachedSource(reading, self.engine.memory)
            part = ids[: reading.tokens]
            try:
                self._pages.save(conversation, namespace, seal, generation, part, source)
            except CheckpointError as error:
                self.checkpoint_failures += 1
                log.warning("checkpoint not written", reason=error.reason, detail=error.detail)
                return
        self.checkpoints += 1
        log.info("checkpoint", conversation=short(conversation), tokens=len(part))

    async def evict(self, conversation: bytes, *, checkpoints: bool) -> tuple[int, int]:
        """Drop a conversation from memory, and from disk if asked; return (tokens, checkpoints).

        Raises CacheBusy while it is being answered; nothing is dropped then.
        """
        return await self._call(partial(self._evict, conversation, checkpoints))

    def _evict(self, conversation: bytes, checkpoints: bool) -> tuple[int, int]:
        tokens = self._pool.cached.evict(conversation)
        count = 0
        if checkpoints:
            count = len(self._pages.manifests(conversation))
            self._pages.delete(conversation)
        return tokens, count

    async def manifests(self, conversation: bytes) -> list[Manifest]:
        """Return the checkpoints held of a conversation, newest first."""
        return await self._call(partial(self._pages.manifests, conversation))
