"""Checkpoints are written beside the computation: nothing waits for the disk."""

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Sequence

import pytest
from structlog.testing import capture_logs

from model_host.batching import Event, Found, Job
from model_host.errors import CheckpointDiskFull
from model_host.io.threads import checkpoint_writer, engine_thread
from model_host.io.threads.checkpoint_writer import CheckpointWriter, Saving
from model_host.io.threads.engine_thread import EngineThread
from model_host.kv.checkpoint import Manifest
from model_host.kv.page_store import PageSource
from replica.errors import HostError
from tests.model_host.batching.test_batcher import NAMESPACE, Scene, is_right, text
from tests.model_host.kv.naive_pages import NaivePages

WAIT_S = 10


class SlowPages(NaivePages):
    """A store on a disk that stands still until the test lets it go on."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.goes_on = threading.Event(), threading.Event()
        self.goes_on.set()
        self.is_full = False

    def save(
        self,
        conversation: bytes,
        namespace: bytes,
        seal: bytes,
        generation: bytes,
        ids: Sequence[int],
        source: PageSource,
    ) -> Manifest | None:
        self.reached.set()
        assert self.goes_on.wait(WAIT_S)
        if self.is_full:
            raise CheckpointDiskFull
        return super().save(conversation, namespace, seal, generation, ids, source)


class Saved:
    """An engine thread over number pages and a slow store."""

    def __init__(self) -> None:
        self.scene = Scene()
        self.pages = SlowPages()
        self.thread = EngineThread(self.scene.engine, self.scene.pool, self.pages)

    async def run(self, number: int, tokens: int = 300) -> Job:
        job = self.scene.job(text(tokens, number), 5, conversation=number)
        events: list[Event] = []
        await self.thread.compute(job, events.extend)
        assert is_right(job)
        self.found = next(event for event in events if isinstance(event, Found))
        return job

    def save(self, job: Job) -> None:
        self.thread.checkpoint(job.conversation, NAMESPACE, b"s" * 32, b"", job.ids)

    async def written(self, job: Job) -> list[int]:
        return [manifest.tokens for manifest in await self.thread.manifests(job.conversation)]


@pytest.fixture
async def saved() -> AsyncIterator[Saved]:
    made = Saved()
    made.thread.start()
    yield made
    made.pages.goes_on.set()
    await made.thread.close()


async def test_a_run_is_computed_while_the_disk_stands_still(saved: Saved):
    first = await saved.run(1)
    saved.pages.goes_on.clear()
    saved.save(first)
    await asyncio.to_thread(saved.pages.reached.wait, WAIT_S)
    # The next turn of the conversation, and one of another.
    again = saved.scene.job([*first.ids, 3, 4], 5, conversation=1)
    await saved.thread.compute(again, lambda _events: None)
    assert is_right(again)
    await saved.run(2)
    assert saved.thread.counts.writes.written == 0
    saved.pages.goes_on.set()
    assert await saved.written(first) == [304]
    assert saved.thread.counts.writes.written == 1


class Unanswered:
    """A writer whose calls to the engine's thread nobody performs."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.writer = CheckpointWriter(Scene().pool, SlowPages(), lambda _call: self.asked.set())
        self.writer.start()

    def has_ended(self) -> bool:
        self.writer._thread.join(WAIT_S)
        return not self.writer.is_running


def test_a_writer_that_waits_for_the_engine_s_thread_ends_with_it():
    made = Unanswered()
    made.writer.save(Saving(b"c" * 32, NAMESPACE, b"s" * 32, b"", text(300, 1)))
    assert made.asked.wait(WAIT_S)
    made.writer.abandon()
    assert made.has_ended()
    assert made.writer.counters.dropped == 1


def test_a_writer_that_a_bug_has_ended_takes_no_call():
    made = Unanswered()
    made.writer.call(lambda: sys.exit("a bug"))
    assert made.has_ended()
    with pytest.raises(HostError):
        made.writer.call(list)


async def test_a_checkpoint_is_copied_one_group_between_two_steps(saved: Saved):
    first = await saved.run(1)
    reads, read = [], saved.scene.engine.memory.read
    saved.scene.engine.memory.read = lambda *place: reads.append(place) or read(*place)
    saved.save(first)
    await saved.written(first)
    assert [stop - start for _, start, stop in reads] == [64, 64, 64, 64, 48]


async def test_pages_evicted_before_they_are_copied_drop_the_checkpoint(saved: Saved):
    first, second = await saved.run(1), await saved.run(2)
    saved.pages.goes_on.clear()
    saved.save(first)
    saved.save(second)
    await asyncio.to_thread(saved.pages.reached.wait, WAIT_S)
    # Nothing of it is held in memory, and no call waits for the disk.
    assert await saved.thread.evict(first.conversation, checkpoints=False) == (304, 0)
    saved.pages.goes_on.set()
    assert await saved.written(first) == []
    assert await saved.written(second) == [304]
    assert (saved.thread.counts.writes.written, saved.thread.counts.writes.dropped) == (1, 1)
    assert saved.thread.counts.writes.failed == 0


async def test_of_more_checkpoints_than_fit_the_queue_the_next_turn_writes_the_tokens(
    saved: Saved, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(checkpoint_writer, "SAVINGS_MAX", 2)
    jobs = [await saved.run(number) for number in range(1, 5)]
    saved.pages.goes_on.clear()
    saved.save(jobs[0])
    await asyncio.to_thread(saved.pages.reached.wait, WAIT_S)
    for job in jobs[1:]:
        saved.save(job)
    saved.pages.goes_on.set()
    assert [await saved.written(job) for job in jobs] == [[304], [304], [304], []]
    assert saved.thread.counts.writes.dropped == 1


async def test_a_full_disk_is_counted_and_the_next_checkpoint_written(saved: Saved):
    first = await saved.run(1)
    saved.pages.is_full = True
    saved.save(first)
    assert await saved.written(first) == []
    saved.pages.is_full = False
    saved.save(first)
    assert await saved.written(first) == [304]
    assert (saved.thread.counts.writes.written, saved.thread.counts.writes.failed) == (1, 1)


async def test_a_disk_that_stays_full_is_counted_each_time_and_said_once(saved: Saved):
    first = await saved.run(1)
    saved.pages.is_full = True
    with capture_logs() as logs:
        for _ in range(3):
            saved.save(first)
        await saved.written(first)
    assert saved.thread.counts.writes.failed == 3
    assert [line["event"] for line in logs] == ["checkpoint not written"]


async def test_checkpoints_that_wait_are_written_when_the_host_stops():
    saved = Saved()
    saved.thread.start()
    jobs = [await saved.run(number) for number in range(1, 4)]
    for job in jobs:
        saved.save(job)
    await saved.thread.close()
    assert [len(saved.pages.manifests(job.conversation)) for job in jobs] == [1, 1, 1]
    saved.save(jobs[0])
    assert saved.thread.counts.writes.dropped == 1


async def test_a_disk_that_stands_still_delays_the_stop_for_a_bounded_time(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(engine_thread, "FLUSH_S", 0.05)
    saved = Saved()
    saved.thread.start()
    jobs = [await saved.run(number) for number in (1, 2)]
    saved.pages.goes_on.clear()
    for job in jobs:
        saved.save(job)
    await asyncio.to_thread(saved.pages.reached.wait, WAIT_S)
    closing = asyncio.create_task(saved.thread.close())
    await asyncio.to_thread(saved.thread._thread.join)
    saved.pages.goes_on.set()
    await closing
    assert [saved.pages.manifests(job.conversation) for job in jobs] == [[], []]
    assert saved.thread.counts.writes.dropped == 2


async def test_a_wrong_page_found_by_the_audit_is_used_no_more():
    saved = Saved()
    saved.thread = EngineThread(
        saved.scene.engine, saved.scene.pool, saved.pages, choose=lambda below: below - 1
    )
    saved.thread.start()
    first = await saved.run(1)
    saved.save(first)
    await saved.written(first)
    await saved.thread.evict(first.conversation, checkpoints=False)
    (held,) = saved.pages._held[first.conversation]
    held.payload[3][0] ^= 1
    job = saved.scene.job([*first.ids, 3], 1, conversation=1)
    await saved.thread.compute(job, lambda _events: None)
    while not saved.thread.counts.audits.mismatches:
        await saved.thread.manifests(first.conversation)
    assert await saved.thread.evict(first.conversation, checkpoints=False) == (0, 0)
    assert saved.scene.pool.used_bytes == 0
    again = saved.scene.job([*first.ids, 3], 1, conversation=1)
    await saved.thread.compute(again, lambda _events: None)
    assert is_right(again)
    assert saved.thread.counts.batch.restores == 1
    await saved.thread.close()
