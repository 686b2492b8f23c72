"""Which jobs have pages, which wait, and which give theirs up (spec/07-host §5)."""

from model_host.batching.counters import BatchCounters
from model_host.batching.job import Ended, Events, Found, Job
from model_host.batching.open_jobs import OpenJobs
from model_host.batching.restorer import Restorer
from model_host.errors import CacheBusy
from replica.errors import HostError
from replica.log.body import FinishReason
from tests.model_host.batching.test_batcher import A, B, Scene, text


class Table:
    """The jobs of a scene without its batcher."""

    def __init__(self, slabs: int = 40, sequences_max: int = 8) -> None:
        self.scene = Scene(slabs, 4)
        self.counters = BatchCounters()
        restorer = Restorer(
            self.scene.pool, self.scene.pages, self.counters,
            token_bytes=self.scene.engine.memory.bytes_per_token, clock=self.scene.clock,
        )  # fmt: skip
        self.jobs = OpenJobs(
            self.scene.pool, restorer, self.counters,
            context_tokens=4_096, sequences_max=sequences_max,
        )  # fmt: skip
        self.events: Events = []

    def add(self, tokens: int, owner: bytes = A, seed: int = 1) -> Job:
        job = self.scene.job(text(tokens, seed), owner=owner, conversation=seed)
        self.jobs.add(job)
        return job

    def open(self) -> list[Job]:
        self.jobs.open_more(self.events)
        self.scene.pool.check_integrity()
        return self.jobs.open


def test_jobs_open_in_the_order_they_came_and_report_what_was_found():
    table = Table()
    first, second = table.add(9, seed=1), table.add(600, seed=2)
    assert table.open() == [first, second]
    assert table.events == [(first, Found(0, 0)), (second, Found(0, 0))]


def test_lookups_are_those_of_requests_and_each_counts_once():
    table = Table(slabs=4)
    counters = table.scene.pool.counters
    first, second = table.add(900, seed=1), table.add(900, seed=2)
    assert table.open() == [first]  # the other one was looked up, and found no memory
    # Replays, warmed contexts and audits open sequences of their own.
    table.scene.pool.close(table.scene.pool.open(text(9, 5), b"d" * 32, b"c" * 32))
    assert (counters.lookups, counters.hits) == (1, 0)
    for job in (first, second):
        assert table.open() == [job]
        table.scene.pool.advance(job.sequence, job.ids[:600])
        job.run.end(FinishReason.STOP, "")
        table.jobs.end(job, table.events)
    again = table.scene.job(text(600, 2), conversation=2)
    table.jobs.add(again)
    assert table.open() == [again]
    assert (counters.lookups, counters.hits) == (3, 1)
    assert (counters.cached_tokens, counters.shared_tokens) == (599, 0)


def test_an_owner_with_fewer_jobs_open_comes_first():
    table = Table(sequences_max=3)
    many = [table.add(9, A, seed) for seed in range(3)]
    table.add(9, B, 9)
    assert [job.owner for job in table.open()] == [A, A, B]
    assert many[2].sequence is None


def test_a_job_waits_until_another_one_ends():
    table = Table(slabs=4)
    first, second = table.add(900, seed=1), table.add(900, seed=2)
    assert table.open() == [first]
    assert table.open() == [first]
    first.run.end(FinishReason.STOP, "")
    table.jobs.end(first, table.events)
    assert table.open() == [second]


def test_a_job_that_no_end_of_another_makes_room_for_fails():
    table = Table(slabs=8)
    first = table.add(900, seed=1)
    assert table.open() == [first]
    table.scene.pool.advance(first.sequence, first.ids[:900])
    first.run.end(FinishReason.STOP, "")
    table.jobs.end(first, table.events)
    assert table.scene.pool.cached.pin(first.ids, first.conversation, until=1e9)
    late = table.add(3_300, seed=2)
    assert table.open() == []
    assert table.jobs.is_empty
    job, event = table.events[-1]
    assert job is late
    assert isinstance(event, Ended)
    assert isinstance(event.error, CacheBusy)


def test_rows_that_others_would_give_up_pages_for_are_reserved_only_if_they_must_be():
    table = Table(slabs=5)
    first, second = table.add(1_000, seed=1), table.add(1_000, seed=2)
    assert table.open() == [first, second]
    assert table.jobs.try_reserve(first, 1_000)
    assert not table.jobs.try_reserve(first, 1_600)
    assert not table.jobs.try_reserve(first, 4_000)
    assert table.jobs.open == [first, second]
    table.jobs.reserve(first, 1_600, table.events)
    assert table.jobs.open == [first]
    assert table.counters.preemptions == 1
    table.scene.pool.check_integrity()


def test_a_cancelled_job_ends_with_or_without_pages():
    table = Table(slabs=4)
    jobs = [table.add(900, seed=1), table.add(900, seed=2)]
    table.open()
    for job in jobs:
        job.cancel()
    table.jobs.end_cancelled(table.events)
    assert table.jobs.is_empty
    assert table.events[-2:] == [(job, Ended()) for job in jobs]


def test_a_job_that_fails_reports_its_error():
    table = Table()
    job = table.add(9)
    table.open()
    error = HostError("The engine failed.")
    table.jobs.fail(job, error, table.events)
    assert table.events[-1] == (job, Ended(error))
    assert job.run.finished is not None
    assert job.run.finished[0] is FinishReason.INTERRUPTED
    assert table.jobs.is_empty
