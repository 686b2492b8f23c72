"""Runs without a log, to measure the batcher alone."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from model_host.batching import SEQUENCES_MAX, Batcher, Chosen, Job
from model_host.engine.torch_engine import TorchEngine
from model_host.generation import Plan, Run
from model_host.io.files.checkpoint_files import Checkpoints
from model_host.kv import PagePool
from model_host.rendering import Context
from model_host.sampling import SamplerState
from replica.ids import ConversationId, Digest, EntryId, PublicKey
from replica.log import Request, Sampling, Seal

OWNER = b"o" * 32
_REQUEST, _ANY = EntryId(b"r" * 32), Digest(bytes(32))
_SEAL = Seal(_REQUEST, None, (_REQUEST,), _ANY, _ANY, _ANY, (1,), ())


class _Silent:
    """Visible text of tokens without any."""

    stopped_by = None
    calls = ()
    hidden_bytes = 0

    def push(self, _token_id: int) -> bytes:
        return b""

    def finish(self, *, can_continue: bool) -> bytes:  # the protocol's name
        return b""


@dataclass
class Host:
    """A batcher over an engine's memory, and the checkpoints of a folder."""

    engine: TorchEngine
    pool: PagePool
    pages: Checkpoints
    batcher: Batcher

    def job(
        self,
        ids: Sequence[int],
        output_tokens: int,
        *,
        conversation: bytes,
        owner: bytes = OWNER,
        sampling: Sampling | None = None,
        request: Request | None = None,
        end_ids: frozenset[int] = frozenset(),
    ) -> Job:
        """Return a run of a prompt that ends after so many tokens.

        `request` states the sampling otherwise; a token of `end_ids` ends the run.
        """
        request = request or Request(PublicKey(bytes(32)), sampling or Sampling())
        context = Context(tuple(ids), _ANY)
        plan = Plan(ConversationId(conversation), _REQUEST, request, _SEAL, context, output_tokens)
        state = SamplerState(
            request, vocabulary=self.engine.config.vocab, context=ids, end_ids=end_ids
        )
        run = Run(plan, _REQUEST, 1, state, _Silent(), self.engine.config.context_tokens)
        namespace = self.engine.namespace(owner).digest
        return Job(run, conversation, owner, namespace, namespace)

    def run(self, *jobs: Job) -> dict[Job, list[float]]:
        """Compute runs together to their ends; return the times of their tokens, in seconds."""
        for job in jobs:
            self.batcher.add(job)
        began, times = perf_counter(), {job: list[float]() for job in jobs}
        while not self.batcher.is_idle:
            for job, event in self.batcher.step():
                if isinstance(event, Chosen):
                    times[job].append(perf_counter() - began)
        return times

    def save(self, job: Job) -> None:
        """Write the checkpoint of a run that has ended."""
        source = self.pool.cached.unpinned(job.ids, job.conversation)
        ids = job.ids[: source.tokens]
        self.pages.save(job.conversation, job.namespace, bytes(32), b"", ids, source)


@contextmanager
def host(engine: TorchEngine, folder: Path, kv_bytes: int = 2 << 30) -> Iterator[Host]:
    """Start with an empty memory and the folder's checkpoints; the model stays loaded."""
    pool = PagePool(engine.memory, tail_slots=SEQUENCES_MAX, budget_bytes=kv_bytes)
    pages = Checkpoints(folder / "checkpoints", mac_key=b"k" * 32, budget_bytes=8 << 30)
    try:
        yield Host(engine, pool, pages, Batcher(engine, pool, pages, perf_counter))
    finally:
        for slab in range(engine.memory.slabs):
            engine.memory.clear(slab)
