"""The computation of many runs at once: pages, steps, tokens (spec/07-host §5). Pure.

One step computes rows of several sequences: chunks of prompts, and one row of each that
decodes (model_host/step_plan.py). Each sequence's prefix is looked up in memory, then in
the store, and the rest is computed; the output is the same in each case. Where places or
memory are short, the newest run of the owner with most gives up its pages, and computes
them again later.

Not thread-safe: one thread owns the engine, the pool and the batcher. Only `Job.cancel`
may be called from another one.
"""

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from model_host.engine_api import Engine, Logits, Slice
from model_host.errors import CacheBusy, CheckpointError, CheckpointMissing
from model_host.job import Chosen, Computed, Ended, Event, Found, Job
from model_host.kv import GROUP_TOKENS, SLAB_TOKENS, KVSequence, PagePool, PageStore
from model_host.pace import Pace
from model_host.refusals import ContextTooLong, finish_detail
from model_host.sampler import Sampler
from model_host.step_plan import SEQUENCES_MAX, Demand, StepPlanner
from replica.errors import HostError
from replica.log import FinishReason

log = logging.getLogger(__name__)

Events = list[tuple[Job, Event]]


@dataclass(slots=True)
class BatchCounters:
    """Counts of events since start."""

    steps: int = 0
    rows: int = 0
    restores: int = 0
    fallbacks: int = 0
    """Checkpoints that were not used because they failed a check."""
    preemptions: int = 0


class Batcher:
    """The runs of a host, computed together step by step."""

    def __init__(
        self,
        engine: Engine,
        pool: PagePool,
        pages: PageStore,
        clock: Callable[[], float],
        sequences_max: int = SEQUENCES_MAX,
    ) -> None:
        """Compute with `engine` in `pool`; `clock` returns seconds, to measure steps."""
        self.counters = BatchCounters()
        self._engine = engine
        self._pool = pool
        self._pages = pages
        self._clock = clock
        self._sequences_max = sequences_max
        self._sampler = Sampler()
        self._planner: StepPlanner[Job] = StepPlanner(sequences_max)
        self._pace = Pace()
        self._jobs: list[Job] = []  # the oldest first
        self._is_full = False  # no more sequences fit until one ends

    @property
    def is_idle(self) -> bool:
        """Say whether there is nothing to compute."""
        return not self._jobs

    def add(self, job: Job) -> None:
        """Compute a run that has not finished, from the next step on."""
        assert job.run.finished is None, "a finished run is not computed"
        self._jobs.append(job)
        self._is_full = False

    def step(self) -> Events:
        """Compute one step, and return its events, in order."""
        events: Events = []
        for job in [job for job in self._jobs if job.is_cancelled]:
            job.run.end(FinishReason.CANCELLED, "cancelled by a member")
            self._end(job, events)
        self._open_jobs(events)
        batch = self._batch(events)
        if batch:
            began = self._clock()
            decoding = sum(job.is_decoding for job, _ in batch)
            rows = sum(count for _, count in batch)
            for (job, count), logits in zip(batch, self._compute(batch), strict=True):
                self._advance(job, count, logits, events)
            seconds = self._clock() - began
            self._pace.observe(seconds, decoding=decoding, prompt_rows=rows - decoding)
            self.counters.steps += 1
            self.counters.rows += rows
        return events

    # --- pages ------------------------------------------------------------------------

    def _open_jobs(self, events: Events) -> None:
        """Give jobs without pages theirs, as far as places and memory suffice."""
        while not self._is_full:
            now = self._open_jobs_now()
            closed = [
                job for job in self._jobs if job.sequence is None and not _waits_for(job, now)
            ]
            if not closed:
                return
            open_of = self._open_of_owners()
            job = min(closed, key=lambda one: open_of[one.owner])  # of equals the oldest
            if open_of.total() >= self._sequences_max and not self._make_room(job.owner):
                self._is_full = True
                return
            self._open(job, events)

    def _open(self, job: Job, events: Events) -> None:
        """Find the pages of a job's context, and reserve the rest; a failure ends the job."""
        try:
            if len(job.ids) > self._engine.config.context_tokens:
                raise ContextTooLong(f"{len(job.ids)} tokens")
            job.sequence = self._pool.open(job.ids, job.domain, job.conversation)
            restored = self._restore(job, job.sequence)
            self._pool.grow(job.sequence, job.rest)
        except CacheBusy as error:
            self._close(job)
            if not self._make_room(job.owner):
                self._wait(job, error, events)
            return
        except HostError as error:
            self._fail(job, error, events)
            return
        job.is_decoding = False
        if not job.was_found:
            job.was_found = True
            events.append((job, _found(job.sequence, restored)))

    def _restore(self, job: Job, sequence: KVSequence) -> int:
        """Restore a stored prefix that reaches further than memory; return the tokens it added.

        A failure is counted and never raised: the tokens are computed instead.
        """
        before = sequence.tokens
        try:
            stored = self._pages.find(job.conversation, job.namespace, job.ids, before)
            with self._pool.restoring(sequence, job.ids[: stored.tokens]) as staging:
                self._pages.load(stored, staging)
        except CheckpointMissing:
            return 0
        except CheckpointError as error:
            self.counters.fallbacks += 1
            log.warning("checkpoint_not_used reason=%s detail=%s", error.reason, error.detail)
            return 0
        self.counters.restores += 1
        # Whole groups are restored, an incomplete one in memory too.
        return sequence.tokens - before // GROUP_TOKENS * GROUP_TOKENS

    def _make_room(self, owner: bytes) -> bool:
        """Preempt the newest run of the owner with most, if `owner` has at least two fewer."""
        open_of = self._open_of_owners()
        most = max(open_of, key=lambda one: open_of[one], default=owner)
        if open_of[most] < open_of[owner] + 2:
            return False
        newest = next(job for job in reversed(self._open_jobs_now()) if job.owner == most)
        self._preempt(newest)
        return True

    def _preempt(self, job: Job) -> None:
        """Take a run's place and memory from it until another one ends."""
        self._close(job)
        self.counters.preemptions += 1

    def _wait(self, job: Job, error: CacheBusy, events: Events) -> None:
        """Let a job wait for memory until another one ends; fail it if there is none."""
        if self._open_jobs_now():
            self._is_full = True
        else:
            self._fail(job, error, events)

    def _open_jobs_now(self) -> list[Job]:
        return [job for job in self._jobs if job.sequence is not None]

    def _open_of_owners(self) -> Counter[bytes]:
        return Counter(job.owner for job in self._open_jobs_now())

    # --- one step ---------------------------------------------------------------------

    def _batch(self, events: Events) -> list[tuple[Job, int]]:
        """Return the runs of the next step and the rows of each, with memory reserved."""
        demands = [
            Demand(job, job.owner, job.rest, job.is_decoding) for job in self._open_jobs_now()
        ]
        shares = self._planner.plan(demands, prompt_rows_max=self._pace.prompt_rows_max())
        batch = [(share.key, share.rows) for share in shares]
        for job, rows in batch:
            self._reserve(job, rows, events)
        return [(job, rows) for job, rows in batch if job.sequence is not None]

    def _reserve(self, job: Job, rows: int, events: Events) -> None:
        """Reserve memory for a run's next rows; preempt the newest one where there is none."""
        while job.sequence is not None:
            try:
                self._pool.grow(job.sequence, rows)
            except CacheBusy as error:
                newest = self._open_jobs_now()[-1]
                self._preempt(newest)
                self._is_full = True
                if newest is job:
                    self._wait(job, error, events)
            except HostError as error:
                self._fail(job, error, events)
            else:
                return

    def _compute(self, batch: list[tuple[Job, int]]) -> list[Logits | HostError]:
        """Run a step; if it fails, run each part alone, so that one run can't fail others."""
        slices = []
        for job, rows in batch:
            assert job.sequence is not None, "a batch has runs with pages"
            at = job.sequence.tokens
            slices.append(Slice(job.sequence, job.ids[at : at + rows], int(rows == job.rest)))
        try:
            return [*self._engine.step(slices)]
        except Exception:  # whatever the engine raises, at most one run is at fault
            log.exception("a step failed, of %d sequences", len(slices))
            return [self._compute_alone(part) for part in slices]

    def _compute_alone(self, part: Slice) -> Logits | HostError:
        try:
            (logits,) = self._engine.step([part])
        except HostError as error:
            return error
        except Exception:  # logged, and told to the run's readers
            log.exception("a sequence can't be computed")
            return HostError("The engine failed.")
        return logits

    def _advance(self, job: Job, rows: int, result: Logits | HostError, events: Events) -> None:
        """Record a run's new positions; choose its next token if its context is complete."""
        if isinstance(result, HostError):
            self._fail(job, result, events)
            return
        assert job.sequence is not None, "a batch has runs with pages"
        at = job.sequence.tokens
        self._pool.advance(job.sequence, job.ids[at : at + rows])
        if job.rest:
            events.append((job, Computed(rows)))
            return
        try:
            choice = self._sampler.choose(result[-1], job.run.sampler_state)
        except HostError as error:
            self._fail(job, error, events)
            return
        job.ids.append(choice.token_id)
        job.is_decoding = True
        shown = job.run.add_token(choice.token_id, choice.logprobs)
        events.append((job, Chosen(choice, shown)))
        if job.run.finished is not None:
            self._end(job, events)

    # --- ends -------------------------------------------------------------------------

    def _fail(self, job: Job, error: HostError, events: Events) -> None:
        job.run.end(FinishReason.INTERRUPTED, finish_detail(error))
        self._end(job, events, error)

    def _end(self, job: Job, events: Events, error: HostError | None = None) -> None:
        """Remove a job whose run has finished; its pages stay cached."""
        self._close(job)
        self._jobs.remove(job)
        self._is_full = False
        events.append((job, Ended(error)))

    def _close(self, job: Job) -> None:
        if job.sequence is not None:
            self._pool.close(job.sequence)
            job.sequence = None
        job.is_decoding = False


def _found(sequence: KVSequence, restored: int) -> Found:
    """Return the parts of an opened sequence: restored ones lie behind those in memory."""
    cached = sequence.tokens - restored
    own = min(sequence.own_tokens, cached)
    return Found(own, restored, cached - own)


def _waits_for(job: Job, running: list[Job]) -> bool:
    """Say whether a running job computes a prefix of this one's context just now.

    Many agents begin at once with the same prompt: one of them computes it for all.
    """
    return any(
        other.domain == job.domain and job.common_tokens(other) >= other.done + SLAB_TOKENS // 2
        for other in running
        if not other.is_decoding
    )
