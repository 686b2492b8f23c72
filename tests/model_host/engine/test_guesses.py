"""Guessed tokens on the real model: the same answers, and the same keys and values.

Guesses across the border of two slabs are computed in one number format; test_exactness has
such steps in all three.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count

import numpy as np
import pytest

from model_host.batching import Batcher, Job
from model_host.engine.tokenizer import Tokenizer
from model_host.engine.torch_engine import TorchEngine
from model_host.generation import Run, VisibleText
from model_host.grammar import Grammars, source_for
from model_host.kv import PagePool
from model_host.rendering import Context
from model_host.rendering.tool_formats import HERMES
from model_host.sampling import SamplerState
from replica.ids import EntryId
from replica.log.body import FormatKind, ResponseFormat, Sampling
from tests.model_host.batching.test_batcher import ASKED, PLAN
from tests.model_host.conftest import EngineOf
from tests.model_host.kv.naive_pages import NaivePages
from tests.model_host.planned import ANY

END = 2
LINE = " one red apple, two blue apples,"
REPEATED = ResponseFormat(FormatKind.REGEX, "( (one|two) (red|blue|green) apples?,)+")

REQUESTS = {
    "beyond a slab": (LINE * 63, ASKED),
    "greedy": (LINE * 5, ASKED),
    "drawn": (LINE * 6, replace(ASKED, sampling=Sampling(temperature=0.9, seed=5), logprobs=2)),
    "penalised": (
        LINE * 5,
        replace(
            ASKED,
            sampling=Sampling(temperature=0.3, seed=6, repetition_penalty=1.02, penalty_window=64),
            stop=("apples, one red",),
        ),
    ),
    "constrained": (
        LINE * 5,
        replace(ASKED, sampling=Sampling(temperature=0.9, seed=7), response_format=REPEATED),
    ),
}
TOKENS = 16


@pytest.fixture(scope="module")
def grammars(tokenizer: Tokenizer) -> Grammars:
    return Grammars(tokenizer, {END})


class Host:
    """A batcher over an engine's memory; a row costs no time by its clock."""

    def __init__(self, engine: TorchEngine, guesses_max: int) -> None:
        self.engine = engine
        self.pool = PagePool(engine.memory, tail_slots=8, budget_bytes=1 << 30)
        ticks = count()
        self.batcher = Batcher(
            engine, self.pool, NaivePages(), lambda: float(next(ticks)), guesses_max=guesses_max
        )

    def run(self, jobs: list[Job]) -> list[object]:
        """Compute jobs together; return all that must not depend on guesses."""
        for job in jobs:
            self.batcher.add(job)
        while not self.batcher.is_idle:
            self.batcher.step()
        self.pool.check_integrity()
        return [
            (job.ids, job.run.finished, bytes(job.run.visible), job.run.logprobs, self.keys(job))
            for job in jobs
        ]

    def keys(self, job: Job) -> bytes:
        """Return the keys and values of a job's context."""
        source = self.pool.cached.unpinned(job.ids, job.conversation)
        assert source.tokens == len(job.ids) - 1
        starts = range(0, source.tokens, 64)
        read = [source.read(at, min(at + 64, source.tokens)) for at in starts]
        return np.concatenate(read).tobytes()


def hosts_of(engine: TorchEngine) -> Iterator[Host]:
    """Two hosts of one engine, one after the other: without guesses, and with."""
    for guesses_max in (0, 7):
        yield Host(engine, guesses_max)
        for slab in range(engine.memory.slabs):
            engine.memory.clear(slab)


def job_of(name: str, engine: TorchEngine, tokenizer: Tokenizer, grammars: Grammars) -> Job:
    text, request = REQUESTS[name]
    prompt = tuple(tokenizer.encode(text))
    source = source_for(request, (), HERMES)
    plan = replace(
        PLAN,
        request=request,
        context=Context(prompt, ANY),
        output_tokens_max=TOKENS,
        grammar=source,
    )
    state = SamplerState(request, vocabulary=engine.config.vocab, context=prompt, end_ids=(END,))
    run = Run(
        plan, EntryId(b"s" * 32), 1, state, VisibleText(tokenizer, request.stop), 2_048,
        grammars.compile(source) if source is not None else None,
    )  # fmt: skip
    return Job(run, name.encode(), b"o" * 32, b"d" * 32, b"n" * 32)


def check(
    engine: TorchEngine, tokenizer: Tokenizer, grammars: Grammars, names: Sequence[str]
) -> None:
    """Assert that the answers to these requests, computed together, don't depend on guesses."""
    results, counters = [], []
    for host in hosts_of(engine):
        results.append(host.run([job_of(n, engine, tokenizer, grammars) for n in names]))
        counters.append(host.batcher.counters)
    assert results[0] == results[1]
    plain, guessing = counters
    assert plain.guesses == 0
    assert guessing.guesses_accepted > TOKENS // 4


@pytest.mark.parametrize(
    ("numerics", "first"), [("q4", "greedy"), ("bf16", "beyond a slab"), ("fp32", "greedy")]
)
def test_answers_keys_and_values_are_those_without_guesses(
    engine_of: EngineOf, tokenizer: Tokenizer, grammars: Grammars, numerics: str, first: str
) -> None:
    names = (first, "drawn", "penalised", "constrained")
    check(engine_of(numerics), tokenizer, grammars, names)


def test_an_answer_alone_is_that_without_guesses(
    engine_of: EngineOf, tokenizer: Tokenizer, grammars: Grammars
) -> None:
    check(engine_of("q4"), tokenizer, grammars, ("greedy",))
