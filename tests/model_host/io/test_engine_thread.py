"""The thread of the engine: events arrive in order, calls between steps, failures are told."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from model_host.batching import Chosen, Ended, Event, Found
from model_host.engine_api import CHUNK_TOKENS
from model_host.errors import CacheBusy
from model_host.io.threads.engine_thread import EngineThread
from model_host.io.threads.turns import Turns
from replica.errors import HostError
from tests.model_host.batching.test_batcher import NAMESPACE, Scene, is_right, text
from tests.model_host.kv.naive_pages import NaivePages


class Threaded:
    """An engine thread over number pages."""

    def __init__(self, turns: Turns | None = None) -> None:
        self.scene = Scene()
        self.pages = NaivePages()
        self.thread = EngineThread(self.scene.engine, self.scene.pool, self.pages, turns=turns)

    async def run(self, count: int = 5, conversation: int = 1) -> list[Event]:
        events: list[Event] = []
        job = self.scene.job(text(300, conversation), count, conversation=conversation)
        await self.thread.compute(job, events.extend)
        assert is_right(job)
        return events

    async def rows(self) -> int:
        """Return the most rows that work between two steps may compute."""
        return await self.thread.between_steps(lambda _engine, _pool, rows: rows)

    @asynccontextmanager
    async def answering(self) -> AsyncIterator[None]:
        """Compute an answer for as long as the block lasts."""
        began = asyncio.Event()
        job = self.scene.job(text(9, 1), 3_000)
        running = asyncio.create_task(self.thread.compute(job, lambda _events: began.set()))
        await began.wait()
        yield
        assert not running.done()
        job.cancel()
        await running


@pytest.fixture
async def threaded() -> AsyncIterator[Threaded]:
    made = Threaded()
    made.thread.start()
    yield made
    await made.thread.close()


async def test_the_events_of_a_run_arrive_in_order_on_the_event_loop(threaded: Threaded):
    loop_thread, seen = threading.current_thread(), set()
    job = threaded.scene.job(text(300, 1), 5)
    events: list[Event] = []

    def receive(received: Sequence[Event]) -> None:
        seen.add(threading.current_thread())
        events.extend(received)

    await threaded.thread.compute(job, receive)
    assert seen == {loop_thread}
    assert isinstance(events[0], Found)
    assert [type(event) for event in events[-6:]] == [*[Chosen] * 5, Ended]
    assert is_right(job)


async def test_runs_are_computed_together(threaded: Threaded):
    await asyncio.gather(*(threaded.run(40, number) for number in range(4)))
    assert max(map(len, threaded.scene.engine.steps)) == 4


async def test_a_receiver_that_fails_fails_its_caller_and_ends_the_run(threaded: Threaded):
    def refuse(_events: Sequence[Event]) -> None:
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        await threaded.thread.compute(threaded.scene.job(text(9, 1), 1_000_000), refuse)
    await threaded.run()
    assert threaded.thread.counts.batch.steps < 1_000


async def test_a_caller_that_is_cancelled_ends_its_run(threaded: Threaded):
    began = asyncio.Event()
    job = threaded.scene.job(text(9, 1), 3_000)
    waiting = asyncio.create_task(threaded.thread.compute(job, lambda _events: began.set()))
    await began.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert job.is_cancelled
    await threaded.run(conversation=2)


async def test_a_context_is_stored_restored_and_evicted_between_steps(threaded: Threaded):
    await threaded.run()
    prompt = text(300, 1)
    conversation = bytes([1]) * 32
    threaded.thread.checkpoint(conversation, NAMESPACE, b"s" * 32, b"g" * 32, prompt)
    (manifest,) = await threaded.thread.manifests(conversation)
    assert threaded.thread.counts.writes.written == 1
    assert manifest.tokens == 300
    tokens, removed = await threaded.thread.evict(conversation, checkpoints=False)
    assert (tokens > 300, removed) == (True, 0)
    events = await threaded.run()
    assert events[0] == Found(0, 256)
    assert (await threaded.thread.evict(conversation, checkpoints=True))[1] == 1


async def test_a_conversation_that_is_being_answered_is_not_evicted(threaded: Threaded):
    began = asyncio.Event()
    job = threaded.scene.job(text(9, 1), 3_000)
    running = asyncio.create_task(threaded.thread.compute(job, lambda _events: began.set()))
    await began.wait()
    with pytest.raises(CacheBusy):
        await threaded.thread.evict(job.conversation, checkpoints=True)
    job.cancel()
    await running


async def test_a_stopped_engine_fails_what_waits_for_it(threaded: Threaded):
    job = threaded.scene.job(text(9, 1), 4_000)
    began = asyncio.Event()
    running = asyncio.create_task(threaded.thread.compute(job, lambda _events: began.set()))
    await began.wait()
    await threaded.thread.close()
    with pytest.raises(HostError, match="The engine has stopped"):
        await running
    with pytest.raises(HostError, match="The engine has stopped"):
        await threaded.thread.manifests(b"c" * 32)


async def test_a_bug_in_the_thread_ends_the_host(
    threaded: Threaded, monkeypatch: pytest.MonkeyPatch
):
    def fail(*_args: object) -> None:
        raise AssertionError("a bug")

    monkeypatch.setattr(threaded.scene.pool, "advance", fail)
    with pytest.raises(HostError, match="The engine has stopped"):
        await threaded.run()
    with pytest.raises(AssertionError, match="a bug"):
        await threaded.thread.failed()


# --- two threads that take turns ----------------------------------------------------------


@pytest.fixture
async def pair() -> AsyncIterator[tuple[Threaded, Threaded]]:
    turns = Turns()
    first, second = Threaded(turns), Threaded(turns)
    first.thread.start()
    second.thread.start()
    yield first, second
    await first.thread.close()
    await second.thread.close()


async def test_work_between_steps_is_short_while_another_thread_answers(
    pair: tuple[Threaded, Threaded],
):
    first, second = pair
    assert await second.rows() == CHUNK_TOKENS
    async with first.answering():
        assert await second.rows() < CHUNK_TOKENS
    assert await second.rows() == CHUNK_TOKENS


async def test_a_context_is_warmed_once_no_thread_answers(pair: tuple[Threaded, Threaded]):
    first, second = pair
    async with first.answering():
        warming = asyncio.create_task(second.thread.warm(text(100, 1), b"d" * 32, b"c" * 32, None))
        for _ in range(5):  # it would have been done by now
            await second.rows()
        assert not warming.done()
    assert (await warming).tokens == 100


async def test_restored_pages_are_audited_once_no_thread_answers(pair: tuple[Threaded, Threaded]):
    first, second = pair
    conversation, thread = bytes([1]) * 32, second.thread
    await second.run()
    thread.checkpoint(conversation, NAMESPACE, b"s" * 32, b"g" * 32, text(300, 1))
    await thread.manifests(conversation)
    await thread.evict(conversation, checkpoints=False)
    async with first.answering():
        assert (await second.run())[0] == Found(0, 256)
        for _ in range(5):
            await second.rows()
        assert thread.counts.audits.audited == 0
    while not thread.counts.audits.audited:
        await second.rows()


async def test_a_thread_that_ends_in_an_answer_holds_no_other_up(pair: tuple[Threaded, Threaded]):
    first, second = pair
    began = asyncio.Event()
    job = first.scene.job(text(9, 1), 3_000)
    running = asyncio.create_task(first.thread.compute(job, lambda _events: began.set()))
    await began.wait()
    warming = asyncio.create_task(second.thread.warm(text(100, 1), b"d" * 32, b"c" * 32, None))
    await second.rows()
    await first.thread.close()
    with pytest.raises(HostError):
        await running
    assert (await warming).tokens == 100
