"""The worker: the contexts in memory are known correctly, also after failures."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from model_host.engine.torch_engine import TorchEngine
from model_host.engine_api import Logits
from model_host.errors import CacheBusy, LogitsInvalid, PrefillCancelled
from model_host.io.checkpoint_files import Checkpoints
from model_host.io.worker import Found, OnProgress, Prefilled, Worker
from model_host.kv.pool import CachePool
from model_host.prefill import Cancellation
from model_host.prefill import prefill as run_prefill
from model_host.sampler import Sampler
from model_host.sampler_state import Mask, SamplerState
from replica.ids import ConversationId, EntryId
from replica.log.body import Request, Sampling
from tests.support.sampling import NOBODY, state_of

A, B = ConversationId(b"a" * 32), ConversationId(b"b" * 32)
OWNER, SEAL, GENERATION = b"o" * 32, EntryId(b"s" * 32), EntryId(b"g" * 32)


def nothing(_found: Found, _done: int) -> None:
    """Ignore progress."""


def token_ids(engine: TorchEngine, count: int, seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(4, engine.config.vocab, count).tolist()


def new_worker(folder: Path, engine: TorchEngine, kv_bytes: int = 1 << 30) -> Worker:
    checkpoints = Checkpoints(folder, mac_key=b"k" * 32, budget_bytes=1 << 30)
    return Worker(engine, CachePool(engine.new_cache, kv_bytes), checkpoints, lambda owner: owner)


@pytest.fixture
async def worker(tmp_path: Path, tiny: TorchEngine) -> AsyncIterator[Worker]:
    worker = new_worker(tmp_path, tiny)
    yield worker
    await worker.close()


@pytest.fixture
async def small_worker(tmp_path: Path, tiny: TorchEngine) -> AsyncIterator[Worker]:
    """A worker with memory for one context of up to 512 tokens."""
    one = tiny.new_cache()
    one.reserve(1)
    worker = new_worker(tmp_path, tiny, one.nbytes)
    yield worker
    await worker.close()


class Watched(SamplerState):
    """A state that notes the thread which reads it."""

    thread = ""

    def scores(self, *given: Logits | Mask | None) -> Logits:
        self.thread = threading.current_thread().name
        return super().scores(*given)


async def prefill(
    worker: Worker,
    ids: Sequence[int],
    on_progress: OnProgress = nothing,
    conversation: ConversationId = A,
) -> Prefilled:
    async with worker.holding(conversation) as hold:
        return await worker.prefill(
            hold, OWNER, ids, on_progress=on_progress, cancellation=Cancellation()
        )


async def test_two_branches_answered_in_turn_each_find_their_turns_in_memory(
    worker: Worker, tiny: TorchEngine
):
    shared = token_ids(tiny, 300, 0)
    branches = [[*shared, *token_ids(tiny, 100, seed)] for seed in (1, 2)]
    found, last = [], []
    for turn in range(3):
        for number in (0, 1):
            branch = branches[number]
            async with worker.holding(A) as hold:
                prefilled = await worker.prefill(
                    hold, OWNER, branch, on_progress=nothing, cancellation=Cancellation()
                )
                found.append(prefilled.found)
                branch.append(int(prefilled.logits.argmax()))
                last.append((list(branch), await worker.decode(hold, branch[-1])))
            branches[number] = branch + token_ids(tiny, 20, 10 + turn)
    # The second branch begins with the common prefix; then each finds all its tokens.
    assert found == [Found(n, 0) for n in (0, 300, 401, 401, 422, 422)]
    for ids, logits in last:
        alone = run_prefill(tiny, tiny.new_cache(), ids)
        assert np.array_equal(logits, alone)
    evicted, _ = await worker.evict(A, checkpoints=False)
    assert evicted == 2 * 443


async def test_a_failure_right_after_a_restore_does_not_mix_two_branches(
    small_worker: Worker, tiny: TorchEngine
):
    worker = small_worker
    one, other = token_ids(tiny, 300, 1), token_ids(tiny, 300, 2)
    await prefill(worker, one)
    await worker.checkpoint(A, OWNER, SEAL, GENERATION, one)
    before = await prefill(worker, other)

    def fail(found: Found, _done: int) -> None:
        assert found.restored_tokens > 0
        raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        await prefill(worker, one, fail)
    # The restored branch is in memory, not the one before it.
    after = await prefill(worker, other)
    assert after.found == Found(0, 0)
    assert np.array_equal(after.logits, before.logits)


async def test_only_the_part_in_memory_is_written(worker: Worker, tiny: TorchEngine):
    one, other = token_ids(tiny, 200, 1), token_ids(tiny, 200, 2)
    await prefill(worker, one)
    await worker.checkpoint(A, OWNER, SEAL, GENERATION, other)
    assert await worker.checkpoints(A) == []
    assert worker.counters.checkpoints == 0
    await worker.checkpoint(A, OWNER, SEAL, GENERATION, [*one[:130], *other])
    assert [c.tokens for c in await worker.checkpoints(A)] == [130]


async def test_a_held_conversation_is_not_evicted(worker: Worker, tiny: TorchEngine):
    ids = token_ids(tiny, 100, 1)
    async with worker.holding(A) as hold:
        with pytest.raises(CacheBusy):
            await worker.evict(A, checkpoints=True)
        await worker.prefill(hold, OWNER, ids, on_progress=nothing, cancellation=Cancellation())
        await worker.checkpoint(A, OWNER, SEAL, GENERATION, ids)
        with pytest.raises(CacheBusy):
            await worker.evict(A, checkpoints=True)
        assert await worker.evict(B, checkpoints=True) == (0, 0)
        assert len(await worker.checkpoints(A)) == 1
        await worker.decode(hold, 5)
    assert await worker.evict(A, checkpoints=True) == (101, 1)


async def test_an_evicted_conversation_has_no_tokens_in_memory(
    small_worker: Worker, tiny: TorchEngine
):
    ids = token_ids(tiny, 100, 1)
    conversations = [ConversationId(bytes([number]) * 32) for number in range(5)]
    for conversation in conversations:
        assert (await prefill(small_worker, ids, nothing, conversation)).found == Found(0, 0)
    assert (await prefill(small_worker, ids, nothing, conversations[-1])).found == Found(99, 0)
    assert (await small_worker.evict(conversations[0], checkpoints=False))[0] == 0


async def test_stopping_cancels_a_prefill_without_blocking_the_loop(
    worker: Worker, tiny: TorchEngine
):
    ids = token_ids(tiny, 1000, 1)
    begun, go_on = threading.Event(), threading.Event()

    def wait(_found: Found, _done: int) -> None:
        begun.set()
        go_on.wait(20)

    prefilling = asyncio.create_task(prefill(worker, ids, wait))
    await asyncio.to_thread(begun.wait, 20)
    # The thread is in a prefill, and closing doesn't block the loop before this line.
    closing = asyncio.create_task(worker.close())
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(PrefillCancelled):
        await prefilling
    await closing


async def test_a_token_is_chosen_in_the_thread_of_the_engine(worker: Worker):
    logits = np.random.default_rng(1).normal(0, 3, 5000).astype(np.float32)
    request = Request(NOBODY, Sampling(temperature=1.0, seed=3), logprobs=2)
    state = Watched(request, vocabulary=5000)
    assert await worker.choose(logits, state) == Sampler().choose(logits, state)
    await worker.choose(logits, state)
    assert state.thread.startswith("engine")


async def test_logits_without_a_choice_raise_an_error(worker: Worker):
    with pytest.raises(LogitsInvalid):
        await worker.choose(np.full(9, np.nan, np.float32), state_of(Sampling()))
