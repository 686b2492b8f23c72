"""The contract of a SlabMemory, for each implementation of it."""

from collections.abc import Callable

import numpy as np
import pytest

from model_host.kv.memory import SLAB_TOKENS, SlabMemory
from tests.model_host.kv.paged import NumpyMemory

MEMORIES: list[Callable[[], SlabMemory]] = [lambda: NumpyMemory(4)]


@pytest.fixture(params=MEMORIES)
def memory(request: pytest.FixtureRequest) -> SlabMemory:
    made: SlabMemory = request.param()
    return made


def _payload(memory: SlabMemory, tokens: int, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.integers(1, 50, tokens * memory.bytes_per_token, np.uint8)


def _is_zero(memory: SlabMemory, slab: int, start: int = 0) -> bool:
    return not memory.read(slab, start, SLAB_TOKENS).any()


def test_a_memory_begins_zero(memory: SlabMemory) -> None:
    assert all(_is_zero(memory, slab) for slab in range(memory.slabs))


def test_positions_written_are_the_positions_read(memory: SlabMemory) -> None:
    parts = [(0, 64), (64, 128), (128, 131)]
    for start, stop in parts:
        memory.write(2, start, stop, _payload(memory, stop - start, seed=start))
    for start, stop in parts:
        assert np.array_equal(memory.read(2, start, stop), _payload(memory, stop - start, start))
    assert _is_zero(memory, 2, 131)
    assert _is_zero(memory, 1)


def test_a_copy_has_the_first_positions_and_no_others(memory: SlabMemory) -> None:
    memory.write(0, 0, 300, _payload(memory, 300))
    memory.copy(0, 3, 130)
    assert np.array_equal(memory.read(3, 0, 130), memory.read(0, 0, 130))
    assert _is_zero(memory, 3, 130)


def test_clearing_zeroes_all_positions_from_a_start(memory: SlabMemory) -> None:
    memory.write(1, 0, SLAB_TOKENS, _payload(memory, SLAB_TOKENS))
    kept = memory.read(1, 0, 70)
    memory.clear(1, 70)
    assert _is_zero(memory, 1, 70)
    assert np.array_equal(memory.read(1, 0, 70), kept)
    memory.clear(1)
    assert _is_zero(memory, 1)
