"""The plan gives each row one partial result per slab it sees, in shapes of the closed set."""

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from bench.pages import Pages
from model_host.engine.attention_plan import Call, Run, plan_calls, runs_of
from model_host.engine.shapes import FAST, SAFE, Shapes
from model_host.kv import SLAB_TOKENS

Seen = Counter[tuple[int, int, int, int]]


def _runs(*parts: tuple[Pages, int]) -> list[Run]:
    """Return the runs of several sequences with new rows each."""
    runs, row = [], 0
    for pages, count in parts:
        runs += runs_of(pages, row, count)
        row += count
    return runs


def _wanted(parts: Sequence[tuple[Pages, int]]) -> Seen:
    """Return (row, place of the partial result, slab, keys seen) as the definition has it."""
    wanted: Seen = Counter()
    row = 0
    for pages, count in parts:
        for position in range(pages.tokens, pages.tokens + count):
            own, offset = divmod(position, SLAB_TOKENS)
            wanted[row, 0, pages.slabs[own], offset + 1] += 1
            for index in range(own):
                wanted[row, index + 1, pages.slabs[index], SLAB_TOKENS] += 1
            row += 1
    return wanted


def _seen(calls: Sequence[Call]) -> Seen:
    """Return the same of what the calls compute."""
    seen: Seen = Counter()
    for call in calls:
        for part in range(call.size):
            for row in range(call.count):
                keys = call.keys if call.offsets is None else call.offsets[part] + row + 1
                assert 0 < keys <= call.keys, "no row is masked as a whole"
                seen[
                    call.row + part * call.row_step + row,
                    call.index + part * call.index_step,
                    call.slab + part * call.slab_step,
                    keys,
                ] += 1
    return seen


@pytest.mark.parametrize("shapes", [FAST, SAFE])
@pytest.mark.parametrize("seed", range(60))
def test_each_row_sees_each_of_its_slabs_once(shapes: Shapes, seed: int) -> None:
    rng = random.Random(seed)
    slabs, shared = rng.sample(range(200), 200), rng.sample(range(200, 300), 6)
    if rng.random() < 0.5:
        slabs.sort()
    parts = []
    for tail in range(rng.choice((1, 2, 5, 16))):
        tokens = rng.choice((0, 1, 63, 64, 300, 500, 511, 512, 513, 1000, 2040, 3000))
        full = tokens // SLAB_TOKENS
        earlier = shared[:full] if rng.random() < 0.5 else [slabs.pop(0) for _ in range(full)]
        pages = Pages([*earlier, 300 + tail, slabs.pop(0)], tokens)
        parts.append((pages, rng.choice((1, 1, 1, 4, 17, 30, 200, 512))))
    calls = plan_calls(_runs(*parts), shapes)
    assert _seen(calls) == _wanted(parts)
    for call in calls:
        assert call.keys in shapes.key_cuts
        assert min(call.row_step, call.slab_step, call.index_step) >= 0


def test_a_run_lies_in_the_slab_of_its_position() -> None:
    """Never relative to the first new row, or to a fork."""
    pages = Pages([7, 3, 9, 4], tokens=900)
    runs = list(runs_of(pages, 20, 400))
    assert runs == [Run(20, 124, (7, 3), 388), Run(144, 276, (7, 3, 9), 0)]


def test_adjacent_tails_are_one_call() -> None:
    parts = [(Pages([tail], tokens=70 + tail), 1) for tail in range(16)]
    (call,) = plan_calls(_runs(*parts), FAST)
    assert (call.size, call.slab_step, call.row_step, call.keys) == (16, 1, 1, 128)


def test_tails_at_different_places_of_their_sequences_are_one_call() -> None:
    parts = [(Pages([50 + tail] * tail + [tail], tokens=512 * tail + 100), 1) for tail in range(4)]
    calls = plan_calls(_runs(*parts), FAST)
    assert calls[0].size == 4


def test_a_long_tail_does_not_slow_down_short_ones() -> None:
    tokens = [100] * 8 + [500] + [100] * 7
    parts = [(Pages([tail], tokens=count), 1) for tail, count in enumerate(tokens)]
    calls = plan_calls(_runs(*parts), FAST)
    assert [(call.size, call.keys) for call in calls] == [(8, 128), (1, 512), (7, 128)]


def test_equally_spaced_slabs_of_a_sequence_are_one_call() -> None:
    calls = plan_calls(_runs((Pages([10, 13, 16, 2], tokens=1600), 1)), FAST)
    assert [(call.slab, call.size, call.slab_step) for call in calls] == [(2, 1, 0), (10, 3, 3)]
    calls = plan_calls(_runs((Pages([10, 13, 17, 2], tokens=1600), 1)), FAST)
    assert [(call.slab, call.size) for call in calls] == [(2, 1), (17, 1), (10, 2)]


def test_readers_of_one_slab_are_rows_of_one_call() -> None:
    parts = [(Pages([30, 31, tail], tokens=1100), 1) for tail in range(16)]
    own, full = plan_calls(_runs(*parts), FAST)
    assert (own.size, own.count) == (16, 1)
    assert (full.size, full.count, full.offsets) == (2, 16, None)


def test_the_first_rows_of_a_chunk_take_fewer_keys() -> None:
    calls = plan_calls(_runs((Pages([0]), 512)), FAST)
    assert [call.keys for call in calls] == sorted({call.keys for call in calls})
    assert sum(call.count for call in calls) == 512
    (call,) = plan_calls(_runs((Pages([0], tokens=56), 17)), FAST)
    assert (call.count, call.keys) == (17, 128)


def test_a_call_without_masked_keys_has_no_mask() -> None:
    (call,) = plan_calls(_runs((Pages([0], tokens=127), 1)), FAST)
    assert (call.offsets, call.keys) == (None, 128)
