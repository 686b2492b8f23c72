"""The jobs of a batcher and their pages: who has some, who waits (spec/07-host §5). Pure.

Each job's prefix is looked up in memory, then in the store. Where places or memory are
short, the newest run of the owner with most gives up its pages, and computes them again
later. Not thread-safe.
"""

from collections import Counter

from model_host.batching.counters import BatchCounters
from model_host.batching.job import Ended, Events, Found, Job
from model_host.batching.restorer import Restorer
from model_host.errors import CacheBudgetExceeded, CacheBusy
from model_host.kv import SLAB_TOKENS, PagePool, common_tokens
from model_host.refusals import ContextTooLong, finish_detail
from replica.errors import HostError
from replica.log import FinishReason


class OpenJobs:
    """All jobs, and the pages of those that are open."""

    def __init__(
        self,
        pool: PagePool,
        restorer: Restorer,
        counters: BatchCounters,
        *,
        context_tokens: int,
        sequences_max: int,
    ) -> None:
        """Open at most `sequences_max` jobs at once, whose contexts have up to `context_tokens`."""
        self._pool = pool
        self._restorer = restorer
        self._counters = counters
        self._context_tokens = context_tokens
        self._sequences_max = sequences_max
        self._jobs: list[Job] = []  # the oldest first
        self._is_full = False  # no more sequences fit until one ends

    @property
    def is_empty(self) -> bool:
        """Say whether there are no jobs."""
        return not self._jobs

    @property
    def open(self) -> list[Job]:
        """Return the jobs with pages, the oldest first."""
        return [job for job in self._jobs if job.sequence is not None]

    def add(self, job: Job) -> None:
        """Add a job whose run has not finished."""
        assert job.run.finished is None, "a finished run is not computed"
        self._jobs.append(job)
        self._is_full = False

    # --- ends -------------------------------------------------------------------------

    def end_cancelled(self, events: Events) -> None:
        """End the jobs that were cancelled."""
        for job in list(self._jobs):
            if job.ending is not None:
                job.run.end(*job.ending)
                self.end(job, events)

    def fail(self, job: Job, error: HostError, events: Events) -> None:
        """End a job because of an error."""
        job.run.end(FinishReason.INTERRUPTED, finish_detail(error))
        self.end(job, events, error)

    def end(self, job: Job, events: Events, error: HostError | None = None) -> None:
        """Remove a job whose run has finished; its pages stay cached."""
        self._close(job)
        self._jobs.remove(job)
        self._is_full = False
        events.append((job, Ended(error)))

    # --- opening ----------------------------------------------------------------------

    def open_more(self, events: Events) -> None:
        """Give jobs without pages theirs, as far as places and memory suffice."""
        while not self._is_full:
            now = self.open
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
            if len(job.ids) > self._context_tokens:
                raise ContextTooLong(f"{len(job.ids)} tokens")
            job.sequence = self._pool.open(job.ids, job.domain, job.conversation)
            restored = self._restorer.restore(job, job.sequence)
            self._pool.grow(job.sequence, job.rest)
        except CacheBusy as error:
            self._close(job)
            if not self._make_room(job.owner):
                self._wait(job, error, events)
            return
        except HostError as error:
            self.fail(job, error, events)
            return
        job.is_decoding = False
        if not job.was_found:
            job.was_found = True
            self._pool.counters.note_lookup(job.sequence)
            found = Found.before_steps(job.sequence, restored)
            self._counters.note_found(found)
            events.append((job, found))

    # --- memory -----------------------------------------------------------------------

    def reserve(self, job: Job, rows: int, events: Events) -> None:
        """Reserve memory for a run's next rows; preempt the newest one where there is none."""
        while job.sequence is not None:
            try:
                self._pool.grow(job.sequence, rows)
            except CacheBusy as error:
                newest = self.open[-1]
                self._preempt(newest)
                self._is_full = True
                if newest is job:
                    self._wait(job, error, events)
            except HostError as error:
                self.fail(job, error, events)
            else:
                return

    def try_reserve(self, job: Job, rows: int) -> bool:
        """Reserve memory for a run's next rows only if no other run has to give up any."""
        assert job.sequence is not None, "an open job has pages"
        try:
            self._pool.grow(job.sequence, rows)
        except (CacheBusy, CacheBudgetExceeded):
            return False
        return True

    def _make_room(self, owner: bytes) -> bool:
        """Preempt the newest run of the owner with most, if `owner` has at least two fewer."""
        open_of = self._open_of_owners()
        most = max(open_of, key=lambda one: open_of[one], default=owner)
        if open_of[most] < open_of[owner] + 2:
            return False
        newest = next(job for job in reversed(self.open) if job.owner == most)
        self._preempt(newest)
        return True

    def _preempt(self, job: Job) -> None:
        """Take a run's place and memory from it until another one ends."""
        self._close(job)
        self._counters.preemptions += 1

    def _wait(self, job: Job, error: CacheBusy, events: Events) -> None:
        """Let a job wait for memory until another one ends; fail it if there is none."""
        if self.open:
            self._is_full = True
        else:
            self.fail(job, error, events)

    def _open_of_owners(self) -> Counter[bytes]:
        return Counter(job.owner for job in self.open)

    def _close(self, job: Job) -> None:
        if job.sequence is not None:
            self._pool.close(job.sequence)
            job.sequence = None
        job.is_decoding = False


def _waits_for(job: Job, running: list[Job]) -> bool:
    """Say whether a running job computes a prefix of this one's context just now.

    Many agents begin at once with the same prompt: one of them computes it for all.
    """

    def is_ahead(other: Job) -> bool:
        common = common_tokens(job.run.plan.prompt, other.run.plan.prompt)
        return common >= other.done + SLAB_TOKENS // 2

    computing = (other for other in running if not other.is_decoding)
    return any(other.domain == job.domain and is_ahead(other) for other in computing)
