"""The thread that computes: the batcher, its pages and its store (spec/07-host §5).

The event loop never waits for a computation. It hands jobs and calls over to the thread,
which performs them between two steps, and it receives the events of several steps in one go.
Checkpoints are written by another thread, which reads pages by such calls.
"""

import asyncio
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import structlog

from model_host.batching import (
    AuditCounters,
    Auditor,
    BatchCounters,
    Batcher,
    Choose,
    Ended,
    Event,
    Events,
    Job,
    Warmed,
    added,
    warm_chunk,
)
from model_host.engine_api import CHUNK_TOKENS, Engine
from model_host.io.threads.call_queue import CallQueue
from model_host.io.threads.checkpoint_writer import CheckpointWriter, Saving, WriterCounters
from model_host.io.threads.event_queue import EventQueue
from model_host.io.threads.turns import Turns
from model_host.kv import KVSequence, Manifest, PagePool, PageStore, PoolCounters

log = structlog.get_logger()

FLUSH_S = 5.0
"""Time for the checkpoints that wait when the host stops; the rest is dropped."""

Result = TypeVar("Result")
Receive = Callable[[Sequence[Event]], None]


@dataclass(frozen=True, slots=True)
class EngineCounts:
    """The counts of an engine since it was loaded, or of several.

    Those of a running thread change; read elsewhere, they may be a step old.
    """

    batch: BatchCounters = field(default_factory=BatchCounters)
    pool: PoolCounters = field(default_factory=PoolCounters)
    writes: WriterCounters = field(default_factory=WriterCounters)
    audits: AuditCounters = field(default_factory=AuditCounters)

    def plus(self, other: "EngineCounts") -> "EngineCounts":
        """Return the sums, which do not change any more."""
        return EngineCounts(
            added(self.batch, other.batch),
            added(self.pool, other.pool),
            added(self.writes, other.writes),
            added(self.audits, other.audits),
        )


class EngineThread:
    """One engine, its pages in memory and in the store, in a thread of their own."""

    def __init__(
        self,
        engine: Engine,
        pool: PagePool,
        pages: PageStore,
        *,
        turns: Turns | None = None,
        choose: Choose = secrets.randbelow,
    ) -> None:
        """Use the engine and pool in the thread only, once `start` is called.

        All that the thread computes and copies is done in its turn, where several of them
        share `turns`. `choose` draws the restored groups that are audited.
        """
        self.engine = engine
        self._turns = turns or Turns()
        self._pool = pool
        self._pages = pages
        self._batcher = Batcher(engine, pool, pages, time.monotonic)
        self.cost = self._batcher.cost
        """Measured times of restoring and computing; another thread may read them."""
        self._auditor = Auditor(engine, pool, pages, choose)
        self._calls = CallQueue(self._turns)
        self._idle_work = _IdleWork(self._calls, self._auditor, self._turns)
        self._writer = CheckpointWriter(pool, pages, self._calls.post)
        self.counts = EngineCounts(
            self._batcher.counters, pool.counters, self._writer.counters, self._auditor.counters
        )
        self._events = EventQueue(self._deliver)
        self._receivers: dict[Job, tuple[Receive, asyncio.Future[None]]] = {}
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._is_stopping = False

    # --- life -------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread; results and events go to the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._calls.open()
        self._events.open()
        self._writer.start()
        self._thread.start()

    async def failed(self) -> None:
        """Raise the error that ended the thread; wait for ever if it runs."""
        await asyncio.shield(self._ended)

    def stop(self) -> None:
        """End the thread after its present step; jobs in progress stay unfinished.

        Checkpoints that wait are written first, for at most FLUSH_S.
        """
        self._is_stopping = True
        self._calls.wake()

    async def close(self) -> None:
        """Stop, and wait for the end of the thread."""
        self.stop()
        await asyncio.to_thread(self._thread.join)
        await asyncio.to_thread(self._writer.join)
        self._events.close()

    def _run(self) -> None:
        error: BaseException | None = None
        with self._turns:
            self._turns.join(self._calls.wake)
        try:
            while not self._is_stopping:
                self._perform_calls()
                if not (self._batcher.is_idle or self._is_stopping):
                    self._events.post(self._step())
            self._flush()
        except BaseException as caught:  # a bug: whoever waits for the thread is told
            log.exception("the engine thread failed")
            error = caught
        self._writer.abandon()
        with self._turns:
            self._turns.leave(self._calls.wake)
        self._loop.call_soon_threadsafe(self._end, error)

    def _step(self) -> Events:
        with self._turns:
            events = self._batcher.step()
            _audit_restored(self._batcher, self._auditor)
            self._turns.note(self._calls.wake, is_answering=not self._batcher.is_idle)
            return events

    def _perform_calls(self) -> None:
        """Perform the calls queued; wait for one while there is nothing to compute or audit.

        The end of the last answer of all threads ends the wait too.
        """
        has_work = self._idle_work.may_begin or not self._batcher.is_idle
        self._calls.perform_all(wait=not has_work)
        if self._idle_work.may_begin and not self._is_stopping:
            self._idle_work.perform_one()

    def _flush(self) -> None:
        """Perform calls until all checkpoints that wait are written, or the time is over."""
        self._writer.stop()
        deadline = time.monotonic() + FLUSH_S
        while self._writer.is_running and (left := deadline - time.monotonic()) > 0:
            self._calls.perform_one(left)

    def _end(self, error: BaseException | None) -> None:
        """Fail everything that waits for the thread."""
        self._calls.end()
        if error is not None:
            self._ended.set_exception(error)

    # --- runs -------------------------------------------------------------------------

    async def compute(self, job: Job, receive: Receive) -> None:
        """Compute a run to its end; `receive` is called with its events, on the event loop.

        They come in order, as gathered by EventQueue. Raises what `receive` raises, and
        HostError if the thread ends.
        """

        def begin() -> None:
            self._batcher.add(job)
            self._turns.note(self._calls.wake, is_answering=True)

        with self._calls.awaited() as done:
            self._receivers[job] = (receive, done)
            self._calls.post(begin)
            try:
                await done
            finally:
                del self._receivers[job]
                job.cancel()  # has no effect on a run that has ended

    def _deliver(self, events: Events) -> None:
        by_job: dict[Job, list[Event]] = {}
        for job, event in events:
            by_job.setdefault(job, []).append(event)
        for job, of_job in by_job.items():
            receive, done = self._receivers.get(job, (None, None))
            if receive is None or done is None or done.done():
                continue  # its caller has gone
            try:
                receive(of_job)
            except Exception as error:  # noqa: BLE001  # it fails the call of `compute`
                done.set_exception(error)
            else:
                if isinstance(of_job[-1], Ended):
                    done.set_result(None)

    # --- derived state ----------------------------------------------------------------

    async def warm(
        self,
        ids: Sequence[int],
        domain: bytes,
        conversation: bytes,
        namespace: bytes | None,
        *,
        keep_s: int = 0,
    ) -> Warmed:
        """Compute the next chunk of a context once no thread computes an answer.

        With the namespace of stored pages, a stored prefix is restored instead. Behind the
        last chunk the context is kept in memory for `keep_s` seconds. Raises
        CacheBudgetExceeded or CacheBusy.
        """

        def restore(wanted: Sequence[int], sequence: KVSequence) -> int:
            assert namespace is not None, "it is called with a namespace alone"
            return self._batcher.restore_prefix(conversation, namespace, wanted, sequence)

        def work() -> Warmed:
            from_store = restore if namespace is not None else None
            warmed = warm_chunk(self.engine, self._pool, ids, domain, conversation, from_store)
            _audit_restored(self._batcher, self._auditor)
            if keep_s and warmed.tokens == len(ids):
                kept = self._batcher.keep(ids, conversation, keep_s)
                return replace(warmed, kept_tokens=kept)
            return warmed

        return await self._calls.call(work, when_idle=True)

    async def between_steps(self, work: Callable[[Engine, PagePool, int], Result]) -> Result:
        """Perform `work` between two steps; its number is the most rows it may compute then.

        Beside answers, of any thread, that is what a prompt would get here.
        """

        def perform() -> Result:
            beside = self._batcher.pace.prompt_rows_max()
            rows = beside if self._turns.is_answering else CHUNK_TOKENS
            return work(self.engine, self._pool, rows)

        return await self._calls.call(perform)

    def checkpoint(
        self,
        conversation: bytes,
        namespace: bytes,
        seal: bytes,
        generation: bytes,
        ids: Sequence[int],
    ) -> None:
        """Store the part of a context that is in memory, soon; a failure is counted and logged."""
        self._writer.save(Saving(conversation, namespace, seal, generation, ids))

    async def evict(self, conversation: bytes, *, checkpoints: bool) -> tuple[int, int]:
        """Drop a conversation from memory, and from disk if asked; return (tokens, checkpoints).

        Raises CacheBusy while it is being answered; nothing is dropped then.
        """
        tokens = await self._calls.call(partial(self._pool.cached.evict, conversation))
        count = 0
        if checkpoints:
            count = await self.stored(partial(delete_checkpoints, self._pages, conversation))
        return tokens, count

    async def look(self, work: Callable[[Batcher, PagePool, PageStore], Result]) -> Result:
        """Return what `work` finds between two steps; it changes nothing.

        Raises HostError if the thread has ended.
        """
        return await self._calls.call(partial(work, self._batcher, self._pool, self._pages))

    async def manifests(self, conversation: bytes) -> list[Manifest]:
        """Return the checkpoints held of a conversation, newest first."""
        return await self.stored(partial(self._pages.manifests, conversation))

    async def stored(self, work: Callable[[], Result]) -> Result:
        """Perform a call on the store, after all checkpoints asked for so far are written.

        Raises what it raises, and HostError if the thread has ended.
        """
        return await asyncio.wrap_future(self._writer.call(work))


class _IdleWork:
    """What a thread does while no thread of the host computes an answer: Warm, and audits."""

    def __init__(self, calls: CallQueue, auditor: Auditor, turns: Turns) -> None:
        self._calls = calls
        self._auditor = auditor
        self._turns = turns

    @property
    def may_begin(self) -> bool:
        """Whether there is such work, and no answer."""
        has_any = self._calls.has_idle_calls or not self._auditor.is_idle
        return has_any and not self._turns.is_answering

    def perform_one(self) -> None:
        """Perform a call that waits for this, or else audit one group."""
        with self._turns:
            if self._turns.is_answering:
                return  # an answer has begun while this thread waited for its turn
            if self._calls.has_idle_calls:
                self._calls.perform_idle()
            else:
                self._auditor.audit_next()


def _audit_restored(batcher: Batcher, auditor: Auditor) -> None:
    while batcher.restored:
        auditor.add(batcher.restored.popleft())


def delete_checkpoints(pages: PageStore, conversation: bytes) -> int:
    """Delete the checkpoints of a conversation; return their number."""
    count = len(pages.manifests(conversation))
    pages.delete(conversation)
    return count
