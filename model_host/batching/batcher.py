"""The computation of many runs at once: steps, tokens, guesses (spec/07-host §5). Pure.

One step computes rows of several sequences: chunks of prompts, one row of each that decodes
(step_plan.py), and rows of tokens guessed for it (speculation.py). The output is the same in any
batch, and with or without guesses.

Not thread-safe: one thread owns the engine, the pool and the batcher. Only `Job.cancel`
may be called from another one.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence

from model_host.batching.audit import Restored
from model_host.batching.counters import BatchCounters
from model_host.batching.job import Chosen, Computed, Events, Job
from model_host.batching.open_jobs import OpenJobs
from model_host.batching.pace import Pace
from model_host.batching.restorer import Restorer
from model_host.batching.speculation import GUESSES_MAX, SEQUENCES_GUESSED_MAX
from model_host.batching.step_plan import SEQUENCES_MAX, Demand, StepPlanner
from model_host.engine_api import Engine, Logits, Slice
from model_host.kv import PagePool, PageStore
from model_host.sampling import Sampler
from replica.errors import HostError

log = logging.getLogger(__name__)


class Batcher:
    """The runs of a host, computed together step by step."""

    def __init__(
        self,
        engine: Engine,
        pool: PagePool,
        pages: PageStore,
        clock: Callable[[], float],
        sequences_max: int = SEQUENCES_MAX,
        guesses_max: int = GUESSES_MAX,
    ) -> None:
        """Compute with `engine` in `pool`; `clock` returns seconds, to measure steps.

        A step has at most `guesses_max` guesses per run: none where the engine is not
        bitwise, since they could change the output there.
        """
        self.counters = BatchCounters()
        self._engine = engine
        self._pool = pool
        self._clock = clock
        self._guesses_max = guesses_max if engine.bitwise else 0
        self._restorer = Restorer(
            pool,
            pages,
            self.counters,
            token_bytes=engine.memory.bytes_per_token,
            clock=clock,
        )
        self._jobs = OpenJobs(
            pool,
            self._restorer,
            self.counters,
            context_tokens=engine.config.context_tokens,
            sequences_max=sequences_max,
        )
        self.restore_prefix = self._restorer.restore_prefix
        self.cost = self._restorer.cost
        """The measured times of restoring and computing."""
        self._sampler = Sampler()
        self._planner: StepPlanner[Job] = StepPlanner(sequences_max)
        self.pace = Pace()
        """The measured times of steps."""

    @property
    def is_idle(self) -> bool:
        """Say whether there is nothing to compute."""
        return self._jobs.is_empty

    @property
    def restored(self) -> deque[Restored]:
        """Return the contexts restored lately, for an audit, which removes them."""
        return self._restorer.restored

    def add(self, job: Job) -> None:
        """Compute a run that has not finished, from the next step on."""
        self._jobs.add(job)

    def keep(self, ids: Sequence[int], conversation: bytes, seconds: float) -> int:
        """Keep the cached prefix of a context for a time; return its length in tokens.

        Beside all that is kept there is room for one whole context. Raises
        CacheBudgetExceeded or CacheBusy.
        """
        now, room = self._clock(), self._engine.config.context_tokens
        self._pool.cached.expire_pins(now)
        return self._pool.cached.pin(ids, conversation, now + seconds, room_tokens=room)

    def step(self) -> Events:
        """Compute one step, and return its events, in order."""
        events: Events = []
        self._pool.cached.expire_pins(self._clock())
        self._jobs.end_cancelled(events)
        self._jobs.open_more(events)
        batch = self._batch(events)
        if batch:
            self._compute(batch, events)
        return events

    def _compute(self, batch: list[tuple[Job, int]], events: Events) -> None:
        """Compute the rows of a step, and measure it."""
        began = self._clock()
        decoding = sum(job.is_decoding for job, _ in batch)
        guesses = sum(job.guessed(rows) for job, rows in batch)
        rows = sum(rows for _, rows in batch)
        for (job, count), logits in zip(batch, self._run(batch), strict=True):
            self._advance(job, count, logits, events)
        seconds = self._clock() - began
        prompt_rows = rows - decoding - guesses
        self.pace.observe(seconds, decoding=decoding, prompt_rows=prompt_rows, guesses=guesses)
        if not decoding:
            self._restorer.cost.observe_computed(seconds=seconds, rows=rows)
        self.counters.note_step(
            seconds, sequences=len(batch), rows=rows, prompt_rows=prompt_rows, guesses=guesses
        )

    # --- the rows of a step -----------------------------------------------------------

    def _batch(self, events: Events) -> list[tuple[Job, int]]:
        """Return the runs of the next step and the rows of each, with memory reserved."""
        demands = [Demand(job, job.owner, job.rest, job.is_decoding) for job in self._jobs.open]
        shares = self._planner.plan(demands, prompt_rows_max=self.pace.prompt_rows_max())
        for share in shares:
            self._jobs.reserve(share.key, share.rows, events)
        batch = [(share.key, share.rows) for share in shares if share.key.sequence is not None]
        if len(batch) > SEQUENCES_GUESSED_MAX or not all(job.is_decoding for job, _ in batch):
            return batch
        return [(job, rows + self._guess(job, len(batch))) for job, rows in batch]

    def _guess(self, job: Job, sequences: int) -> int:
        """Guess the next tokens of a run that decodes; return how many rows they need."""
        most = min(self._guesses_max, job.run.tokens_left - 1)
        job.speculation.guess(most, row_cost=self.pace.guess_cost, sequences=sequences)
        count = len(job.speculation.guesses)
        if count and not self._jobs.try_reserve(job, job.rest + count):
            job.speculation.drop()
            return 0
        return count

    # --- one step ---------------------------------------------------------------------

    def _run(self, batch: list[tuple[Job, int]]) -> list[Logits | HostError]:
        """Run a step; if it fails, run each part alone, so that one run can't fail others."""
        slices = [_slice(job, rows) for job, rows in batch]
        try:
            return [*self._engine.step(slices)]
        except Exception:  # whatever the engine raises, at most one run is at fault
            log.exception("a step failed", extra={"count": len(slices)})
            return [self._run_alone(part) for part in slices]

    def _run_alone(self, part: Slice) -> Logits | HostError:
        try:
            (logits,) = self._engine.step([part])
        except HostError as error:
            return error
        except Exception:  # logged, and told to the run's readers
            log.exception("a sequence can't be computed")
            return HostError("The engine failed.")
        return logits

    def _advance(self, job: Job, rows: int, result: Logits | HostError, events: Events) -> None:
        """Record a run's new positions; choose its next tokens if its context is complete."""
        if isinstance(result, HostError):
            self._jobs.fail(job, result, events)
            return
        assert job.sequence is not None, "a batch has runs with pages"
        at, end, guesses = job.sequence.tokens, len(job.ids), job.guessed(rows)
        self._pool.advance(job.sequence, job.ids[at : at + rows - guesses])
        if job.rest:
            events.append((job, Computed(rows)))
            return
        try:
            self._choose(job, result, events)
        except HostError as error:
            self._jobs.fail(job, error, events)
            return
        # The positions of wrong guesses are written again: they stay behind the sequence's end.
        self._pool.advance(job.sequence, job.ids[end:-1])
        self.counters.guesses_accepted += len(job.ids) - 1 - end
        if job.run.finished is not None:
            self._jobs.end(job, events)

    def _choose(self, job: Job, logits: Logits, events: Events) -> None:
        """Choose a token behind each right guess, and one more. Raises HostError."""
        run, begin = job.run, len(job.ids)
        for row, guess in zip(logits, (*job.speculation.guesses, None), strict=False):
            choice = self._sampler.choose(row, run.sampler_state, run.mask())
            job.ids.append(choice.token_id)
            self.counters.output_tokens += 1
            is_first = not run.token_ids
            shown = run.add_token(choice.token_id, choice.logprobs)
            events.append((job, Chosen(choice, shown, is_first)))
            if run.finished is not None or choice.token_id != guess:
                break
        job.is_decoding = True
        job.speculation.note(job.ids[begin:])


def _slice(job: Job, rows: int) -> Slice:
    """Return the rows of a job in a step: tokens, then guesses, with logits where one is chosen."""
    assert job.sequence is not None, "a batch has runs with pages"
    at, guesses = job.sequence.tokens, job.guessed(rows)
    ids = [*job.ids[at : at + rows - guesses], *job.speculation.guesses[:guesses]]
    return Slice(job.sequence, ids, guesses + 1 if rows - guesses == job.rest else 0)
