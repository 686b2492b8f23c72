"""The contract of any engine: the real one, and those with numbers in place of a model."""

from collections.abc import Callable

import numpy as np
import pytest

from bench.pages import Memory
from bench.scripted_engine import ScriptedEngine
from model_host.engine.torch_engine import TorchEngine
from model_host.engine_api import Engine, Slice
from tests.model_host.number_engine import NumberEngine

SCRIPT = [7, 8, 7, 9]
Make = Callable[[TorchEngine], Engine]


def computing(tiny: TorchEngine) -> Engine:
    return tiny


def scripted(tiny: TorchEngine) -> Engine:
    return ScriptedEngine(tiny.config, SCRIPT)


def numbers(_tiny: TorchEngine) -> Engine:
    return NumberEngine()


ENGINES = pytest.mark.parametrize("make", [computing, scripted, numbers])


@ENGINES
def test_a_step_returns_the_rows_wanted(make: Make, tiny: TorchEngine) -> None:
    engine = make(tiny)
    memory = Memory(engine)
    pages = [memory.pages(slab) for slab in range(3)]
    batch = [
        Slice(table, [5] * n, logits=wanted)
        for table, n, wanted in zip(pages, (3, 1, 4), (1, 1, 0), strict=True)
    ]
    logits = engine.step(batch)
    assert [rows.shape for rows in logits] == [(n, engine.config.vocab) for n in (1, 1, 0)]
    assert [rows.dtype for rows in logits] == [np.float32] * 3
    assert [table.tokens for table in pages] == [0, 0, 0]  # the caller advances them
    memory.close()


@pytest.mark.parametrize("make", [computing, numbers])
def test_positions_computed_again_give_the_same(make: Make, tiny: TorchEngine) -> None:
    memory = Memory(make(tiny))
    pages = memory.pages(0)
    first = memory.last(pages, [5, 6, 7])
    memory.last(pages, [8, 9])
    pages.tokens = 2
    assert np.array_equal(memory.last(pages, [7]), first)
    memory.close()


@ENGINES
def test_pages_belong_to_one_namespace_per_salt(make: Make, tiny: TorchEngine) -> None:
    engine = make(tiny)
    assert engine.namespace(b"a").digest == engine.namespace(b"a").digest
    assert engine.namespace(b"a").digest != engine.namespace(b"b").digest
    assert engine.namespace(b"a").numerics_class == engine.numerics_class


def test_the_script_is_generated_for_any_context_that_repeats_it(tiny: TorchEngine) -> None:
    memory = Memory(scripted(tiny))
    for slab, asked in enumerate(([1, 2, 3], [9, 1])):
        pages, said = memory.pages(slab), []
        logits = memory.last(pages, asked)
        for _ in SCRIPT[1:]:
            said.append(int(logits.argmax()))
            logits = memory.last(pages, said[-1:])
        assert [*said, int(logits.argmax())] == SCRIPT
