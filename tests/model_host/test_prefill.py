"""Prefill: many tokens in steps, with progress and cancellation between them."""

from collections.abc import Sequence

import numpy as np
import pytest

from model_host.engine.torch_engine import TorchEngine
from model_host.engine_api import CHUNK_TOKENS, Logits, Slice
from model_host.errors import CacheBudgetExceeded, PrefillCancelled
from model_host.prefill import Cancellation, prefill
from model_host.refusals import ContextTooLong


def ids_of(engine: TorchEngine, count: int, seed: int = 5) -> list[int]:
    return np.random.default_rng(seed).integers(4, engine.config.vocab, count).tolist()


class Watched:
    """The tiny engine, and the batches it was given."""

    def __init__(self, engine: TorchEngine) -> None:
        self.config = engine.config
        self.engine = engine
        self.batches: list[Sequence[Slice]] = []

    def step(self, batch: Sequence[Slice]) -> list[Logits]:
        self.batches.append(batch)
        return self.engine.step(batch)


@pytest.mark.parametrize("count", [1, 511, 512, 513, 1000])
def test_a_prefill_goes_in_the_largest_steps_and_asks_for_the_last_row_alone(
    tiny: TorchEngine, count: int
) -> None:
    watched, ids = Watched(tiny), ids_of(tiny, count)
    prefill(watched, tiny.new_cache(), ids)
    sizes = [len(part.ids) for (part,) in watched.batches]
    assert sizes[:-1] == [CHUNK_TOKENS] * (len(sizes) - 1)
    assert sum(sizes) == count
    wanted = [part.logits for (part,) in watched.batches]
    assert wanted == [0] * (len(wanted) - 1) + [1]
    assert [i for (part,) in watched.batches for i in part.ids] == ids


def test_a_prefill_reports_progress_and_returns_the_last_row(tiny: TorchEngine) -> None:
    ids, seen = ids_of(tiny, 560), []
    last = prefill(tiny, tiny.new_cache(), ids, on_progress=seen.append)
    assert seen == [512, 560]
    cache = tiny.new_cache()
    (_,) = tiny.step([Slice(cache, ids[:300])])
    (rows,) = tiny.step([Slice(cache, ids[300:], logits=260)])
    assert last.dtype == np.float32
    assert last.shape == (tiny.config.vocab,)
    assert np.array_equal(last, rows[-1])


@pytest.mark.parametrize("which", [0, 1])
def test_a_cancelled_prefill_keeps_its_finished_steps(tiny: TorchEngine, which: int) -> None:
    ids, cache = ids_of(tiny, 1000), tiny.new_cache()
    cancellations = (Cancellation(), Cancellation())
    with pytest.raises(PrefillCancelled):
        prefill(
            tiny,
            cache,
            ids,
            cancellations=cancellations,
            on_progress=lambda _done: cancellations[which].set(),
        )
    assert cache.tokens == 512
    whole = tiny.new_cache()
    assert np.array_equal(prefill(tiny, cache, ids[512:]), prefill(tiny, whole, ids))
    assert np.array_equal(cache.read(0, 1000), whole.read(0, 1000))


def test_a_prefill_cancelled_before_it_began_computes_nothing(tiny: TorchEngine) -> None:
    cancellation, watched = Cancellation(), Watched(tiny)
    assert not cancellation.is_set
    cancellation.set()
    with pytest.raises(PrefillCancelled):
        prefill(watched, tiny.new_cache(), [1, 2], cancellations=(cancellation,))
    assert watched.batches == []


def test_more_tokens_than_the_context_are_refused_before_any_step(tiny: TorchEngine) -> None:
    watched, cache = Watched(tiny), tiny.new_cache()
    prefill(tiny, cache, ids_of(tiny, 1000))
    for ids in (ids_of(tiny, 25), [1] * 600):
        with pytest.raises(ContextTooLong):
            prefill(watched, cache, ids)
    assert (cache.tokens, watched.batches) == (1000, [])
    prefill(tiny, cache, ids_of(tiny, 24))
    with pytest.raises(ContextTooLong):
        tiny.step([Slice(cache, (1,))])


def test_memory_is_asked_for_once_and_before_any_step(tiny: TorchEngine) -> None:
    claims: list[int] = []
    prefill(tiny, tiny.new_cache(claims.append), ids_of(tiny, 1000))
    assert len(claims) == 1

    def refuse(grown_bytes: int) -> None:
        raise CacheBudgetExceeded

    watched = Watched(tiny)
    with pytest.raises(CacheBudgetExceeded):
        prefill(watched, tiny.new_cache(refuse), ids_of(tiny, 1000))
    assert watched.batches == []
