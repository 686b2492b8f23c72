"""Derived state never changes output: the same bits, however the work is divided."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from bench.pages import Memory
from model_host.engine.shapes import FAST
from model_host.engine.torch_engine import TorchEngine
from model_host.engine_api import CHUNK_TOKENS, Logits, Slice
from model_host.kv import SLAB_TOKENS, Bytes
from model_host.refusals import ContextTooLong
from tests.model_host.engine import tiny_model
from tests.model_host.engine.prefilled import PrefilledOf

TOKENS = 1064  # two slabs and a part of a third
CHUNKS = (1, 2, 3, 4, 5, 7, 16, 17, 33, 64, 100, 200, 333)

Reference = tuple[Logits, Bytes]


def _ids(engine: TorchEngine, count: int = TOKENS, seed: int = 5) -> list[int]:
    rng = np.random.default_rng(seed)
    low = min(17, engine.config.vocab // 2)
    return [int(token) for token in rng.integers(low, engine.config.vocab, count)]


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@pytest.fixture(scope="module")
def reference_of() -> Callable[[TorchEngine], Reference]:
    """Each engine's logits, keys and values of `_ids`, from the fewest, largest chunks."""
    done: dict[str, Reference] = {}

    def compute(engine: TorchEngine) -> Reference:
        if engine.numerics not in done:
            memory = Memory(engine)
            pages = memory.pages(0, 1, 2)
            logits = memory.compute(pages, _ids(engine))
            done[engine.numerics] = logits, memory.keys_values(pages)
            memory.close()
        return done[engine.numerics]

    return compute


@pytest.fixture
def reference(memory: Memory, reference_of: Callable[[TorchEngine], Reference]) -> Reference:
    return reference_of(memory.engine)


def test_the_real_model_gives_the_same_bits_in_any_chunks_and_batches(
    real_memory: Memory, prefilled_of: PrefilledOf
) -> None:
    """The tests below run the kernels of its widths; this one its weights, through all layers."""
    memory, prefilled = real_memory, prefilled_of(real_memory.engine.numerics)
    start, ids = memory.pages(0, 1), prefilled.ids[:560]
    prefilled.restore(memory, start, 500)
    whole, pieces, one, other = (memory.copy(start, at, at + 1) for at in (2, 4, 6, 8))
    expected = memory.compute(whole, ids[500:])
    cuts = [1, 2, 17, 1, 33, 4, 2]
    with _threads(2):
        assert np.array_equal(memory.compute(pieces, ids[500:], cuts), expected)
    # They were computed before in chunks of other sizes.
    assert np.array_equal(memory.keys_values(whole), prefilled.keys_values(560))
    assert np.array_equal(memory.keys_values(pieces), memory.keys_values(whole))
    for count in (20, 4, 1, 16):
        first, second = one.tokens, other.tokens
        parts = (one, ids[first : first + count]), (other, ids[second : second + 3])
        rows = memory.step(*parts)
        assert np.array_equal(rows[0], expected[first - 500 : one.tokens - 500])
        assert np.array_equal(rows[1], expected[second - 500 : other.tokens - 500])


@pytest.mark.parametrize("threads", [1, 2])
def test_chunks_of_any_size_in_scattered_slabs_give_the_same_bits(
    memory: Memory, reference: Reference, threads: int
) -> None:
    rng = random.Random(threads)
    cuts = [rng.choice(CHUNKS) for _ in range(TOKENS)]
    pages = memory.pages(*rng.sample(range(40), 3))
    with _threads(threads):
        logits = memory.compute(pages, _ids(memory.engine), cuts)
    assert np.array_equal(logits, reference[0])
    assert np.array_equal(memory.keys_values(pages), reference[1])


def test_decoding_gives_the_bits_of_prefill(memory: Memory, reference: Reference) -> None:
    """Token by token over the borders of slabs, and over each of the key cuts."""
    ids, pages = _ids(memory.engine), memory.pages(9, 3, 5)
    cuts = [slab + cut for slab in (0, SLAB_TOKENS) for cut in FAST.key_cuts]
    for cut in cuts:
        memory.compute(pages, ids[pages.tokens : cut - 3])
        got = memory.compute(pages, ids[cut - 3 : cut + 3], [1] * 6)
        assert np.array_equal(got, reference[0][cut - 3 : cut + 3])
    memory.compute(pages, ids[pages.tokens :])
    assert np.array_equal(memory.keys_values(pages), reference[1])


def test_a_chunk_across_a_border_gives_the_same_bits(memory: Memory, reference: Reference) -> None:
    """Where rows before a slab's first key would count with weight 1, aligned chunks pass."""
    ids, start = _ids(memory.engine), memory.pages(4, 6, 7)
    memory.compute(start, ids[:490])
    for size in (23, 30, 100, CHUNK_TOKENS):
        pages = memory.copy(start, 10, 11, 12)
        got = memory.compute(pages, ids[490 : 490 + size])
        assert np.array_equal(got, reference[0][490 : 490 + size])


def test_any_batch_gives_the_bits_of_each_alone(memory: Memory, reference: Reference) -> None:
    """Decodes, verifications and a prefill of the same tokens, at different places, in steps."""
    ids, rng = _ids(memory.engine), random.Random(7)
    starts = (0, 60, 127, 300, 505, 511, 512, 700, 1020)
    # Tails side by side in the first slabs; full slabs shared by all.
    whole = memory.pages(20, 21, 22)
    memory.compute(whole, ids)
    batch = []
    for at, start in enumerate(starts):
        full = whole.slabs[: start // 512]
        pages = memory.pages(*full, at, 30 + at, tokens=start)
        if start % 512:
            memory.engine.memory.copy(whole.slabs[start // 512], at, start % 512)
        batch.append(pages)
    for _ in range(8):
        counts = [rng.choice((1, 1, 1, 1, 4, 4, 17, 60)) for _ in batch]
        parts = [
            (pages, ids[pages.tokens : pages.tokens + count])
            for pages, count in zip(batch, counts, strict=True)
            if pages.tokens + count <= TOKENS
        ]
        before = [pages.tokens for pages, _ in parts]
        for start, (pages, _), logits in zip(before, parts, memory.step(*parts), strict=True):
            assert np.array_equal(logits, reference[0][start : pages.tokens])
    size = memory.engine.memory.bytes_per_token
    for pages in batch:
        held = pages.tokens % 512
        last = memory.engine.memory.read(pages.slabs[pages.tokens // 512], 0, held)
        start = pages.tokens // 512 * 512 * size
        expected = memory.engine.memory.read(whole.slabs[pages.tokens // 512], 0, held)
        assert np.array_equal(last, expected)
        assert start + len(last) <= len(reference[1])


@pytest.mark.parametrize("tokens", [100, 600])
def test_adjacent_tails_give_the_bits_of_each_alone(memory: Memory, tokens: int) -> None:
    """Many sequences whose tails one call serves, some of them forks of one prefix."""
    count, engine = 18, memory.engine
    shared = memory.pages(40, 41)
    memory.compute(shared, _ids(engine, tokens))
    forks = []
    for at in range(count):
        slabs = (40, at) if tokens > 512 else (at,)
        forks.append(memory.pages(*slabs, tokens=tokens))
        engine.memory.copy(shared.slabs[tokens // 512], at, tokens % 512)
    own = [_ids(engine, 40, seed=at) for at in range(count)]
    for at, fork in enumerate(forks):
        memory.compute(fork, own[at][: at + 1])
    together = [logits[0] for logits in memory.step(*((f, [5]) for f in forks))]
    for at, logits in enumerate(together):
        alone = memory.copy(shared, 42, 43)
        expected = memory.compute(alone, [*own[at][: at + 1], 5])
        assert np.array_equal(logits, expected[-1])
        assert np.array_equal(
            engine.memory.read(forks[at].slabs[-1], 0, forks[at].tokens % 512),
            engine.memory.read(alone.slabs[tokens // 512], 0, alone.tokens % 512),
        )


def test_reading_and_writing_slabs_gives_the_same_bits(
    memory: Memory, reference: Reference
) -> None:
    ids, pages = _ids(memory.engine), memory.pages(13, 14, 15, tokens=1000)
    store, half = memory.engine.memory, memory.pages(16, 17, 18)
    memory.compute(half, ids[:1000])
    for source, target, held in ((16, 13, 512), (17, 14, 488)):
        for at in range(0, held, 64):
            stop = min(at + 64, held)
            store.write(target, at, stop, store.read(source, at, stop))
    rest = memory.compute(pages, ids[1000:], [1, 20, 43])
    assert np.array_equal(rest, reference[0][1000:])
    assert np.array_equal(memory.keys_values(pages), reference[1])


def test_positions_that_are_computed_again_leave_no_trace(
    memory: Memory, reference: Reference
) -> None:
    """Rejected tokens stay as finite numbers after the valid ones, until they are overwritten."""
    ids, pages = _ids(memory.engine), memory.pages(8, 9, 10)
    memory.compute(pages, ids[:100] + _ids(memory.engine, 500, seed=6))
    pages.tokens = 100
    logits = memory.compute(pages, ids[100:], [1, 3, 500, 500])
    assert np.array_equal(logits, reference[0][100:])
    assert np.array_equal(memory.keys_values(pages), reference[1])


def test_a_step_that_fails_writes_finite_numbers_or_none(tiny_memory: Memory) -> None:
    tiny = tiny_memory.engine
    good, full = tiny_memory.pages(0), tiny_memory.pages(1, 2, 3)
    tiny_memory.compute(good, _ids(tiny, 20))
    tiny_memory.compute(full, _ids(tiny, tiny.config.context_tokens))
    before = tiny.memory.read(0, 0, 512)
    with pytest.raises(ContextTooLong):
        tiny_memory.step((good, [3]), (full, [3]))
    with pytest.raises(IndexError):
        tiny_memory.step((good, [tiny.config.vocab]))  # no such token
    assert np.array_equal(tiny.memory.read(0, 0, 512), before)


def test_a_step_returns_as_many_rows_as_are_asked_for(tiny_memory: Memory) -> None:
    ids = _ids(tiny_memory.engine, 300)
    every = tiny_memory.compute(tiny_memory.pages(0), ids)
    for wanted in (0, 1, 2, 129, 300):
        (rows,) = tiny_memory.engine.step([Slice(tiny_memory.pages(1), ids, logits=wanted)])
        assert rows.dtype == np.float32
        assert np.array_equal(rows, every[300 - wanted :])


def test_a_step_returns_the_rows_that_are_named(tiny_memory: Memory) -> None:
    ids, others = _ids(tiny_memory.engine, 300), _ids(tiny_memory.engine, 100)
    every = tiny_memory.compute(tiny_memory.pages(0), ids)
    beside = tiny_memory.compute(tiny_memory.pages(1), others)
    for wanted in ([], [0], [299], [3, 4, 200], range(20, 40), range(0, 300, 2)):
        batch = [
            Slice(tiny_memory.pages(2), ids, logits=wanted),
            Slice(tiny_memory.pages(3), others, logits=[7, 50]),
        ]
        rows, of_others = tiny_memory.engine.step(batch)
        assert np.array_equal(rows, every[[*wanted]])
        assert np.array_equal(of_others, beside[[7, 50]])


@pytest.mark.parametrize("counts", [(), (0,), (CHUNK_TOKENS + 1,), (CHUNK_TOKENS, 1)])
def test_a_step_has_one_to_512_new_tokens(tiny_memory: Memory, counts: tuple[int, ...]) -> None:
    parts = [(tiny_memory.pages(at, at + 8), [1] * count) for at, count in enumerate(counts)]
    with pytest.raises(AssertionError):
        tiny_memory.step(*parts)


def test_no_slab_is_written_for_two_sequences(tiny_memory: Memory) -> None:
    with pytest.raises(AssertionError):
        tiny_memory.step((tiny_memory.pages(0), [1]), (tiny_memory.pages(0), [2]))


def test_a_step_reserves_no_slabs(tiny_memory: Memory) -> None:
    with pytest.raises(AssertionError):
        tiny_memory.step((tiny_memory.pages(0, tokens=511), [1, 2]))


def test_a_tiny_model_of_another_shape_is_exact_too(tiny_memory: Memory) -> None:
    tiny = tiny_memory.engine
    assert tiny.bitwise
    assert len(tiny_model.TOKENS) == tiny.config.vocab
    ids, a, b = _ids(tiny, 900), tiny_memory.pages(0, 1), tiny_memory.pages(5, 3)
    expected = tiny_memory.compute(a, ids, [512, 388])
    assert np.array_equal(tiny_memory.compute(b, ids, [3] * 300), expected)
    assert np.array_equal(tiny_memory.keys_values(a), tiny_memory.keys_values(b))
