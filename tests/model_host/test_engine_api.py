"""The contract of any engine: the real one, and the scripted one of the benchmarks."""

from collections.abc import Callable

import numpy as np
import pytest
from model_host.prefill import prefill

from bench.scripted_engine import ScriptedEngine
from model_host.engine.torch_engine import TorchEngine
from model_host.engine_api import Engine, Slice

SCRIPT = [7, 8, 7, 9]
Make = Callable[[TorchEngine], Engine]


def computing(tiny: TorchEngine) -> Engine:
    return tiny


def scripted(tiny: TorchEngine) -> Engine:
    return ScriptedEngine(tiny.config, SCRIPT)


ENGINES = pytest.mark.parametrize("make", [computing, scripted])


@ENGINES
def test_a_step_appends_to_each_cache_and_returns_the_rows_wanted(
    make: Make, tiny: TorchEngine
) -> None:
    engine = make(tiny)
    caches = [engine.new_cache() for _ in range(3)]
    batch = [
        Slice(cache, [5] * n, logits=wanted)
        for cache, n, wanted in zip(caches, (3, 1, 4), (1, 1, 0), strict=True)
    ]
    logits = engine.step(batch)
    assert [rows.shape for rows in logits] == [(n, engine.config.vocab) for n in (1, 1, 0)]
    assert [rows.dtype for rows in logits] == [np.float32] * 3
    assert [cache.tokens for cache in caches] == [3, 1, 4]


@ENGINES
def test_a_truncated_cache_continues_from_there(make: Make, tiny: TorchEngine) -> None:
    engine, cache = make(tiny), make(tiny).new_cache()
    first = prefill(engine, cache, [5, 6, 7])
    prefill(engine, cache, [8, 9])
    cache.truncate(2)
    assert np.array_equal(prefill(engine, cache, [7]), first)
    assert cache.tokens == 3


@ENGINES
def test_pages_belong_to_one_namespace_per_salt(make: Make, tiny: TorchEngine) -> None:
    engine = make(tiny)
    assert engine.namespace(b"a").digest == engine.namespace(b"a").digest
    assert engine.namespace(b"a").digest != engine.namespace(b"b").digest
    assert engine.namespace(b"a").numerics_class == engine.numerics_class


def test_the_script_is_generated_for_any_context_that_repeats_it(tiny: TorchEngine) -> None:
    engine = scripted(tiny)
    for asked in ([1, 2, 3], [9, 1]):
        cache, said = engine.new_cache(), []
        logits = prefill(engine, cache, asked)
        for _ in SCRIPT[1:]:
            said.append(int(logits.argmax()))
            logits = prefill(engine, cache, said[-1:])
        assert [*said, int(logits.argmax())] == SCRIPT
