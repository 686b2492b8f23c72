"""A small slab memory, and an engine whose keys and values are numbers derived from the tokens."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from model_host.kv.memory import SLAB_TOKENS, Bytes, PageTable
from model_host.kv.page_pool import PagePool
from model_host.kv.sequences import KVSequence

GROUP_TOKENS = 64
GROUP_BYTES = 64 * 8
SLAB_BYTES = SLAB_TOKENS * 8


class NumpyMemory:
    """A SlabMemory of one 8-byte number per position; keeps account of what is written."""

    def __init__(self, slabs: int) -> None:
        self.cells = np.zeros((slabs, SLAB_TOKENS), np.uint64)
        self.used = np.zeros(slabs, int)  # groups written since they were last cleared
        self.most_used_bytes = 0
        self.written: list[tuple[int, int]] = []  # (slab, first position written or cleared)
        self.copied_tokens = 0

    @property
    def slabs(self) -> int:
        return len(self.cells)

    @property
    def bytes_per_token(self) -> int:
        return 8

    @property
    def used_bytes(self) -> int:
        return int(self.used.sum()) * GROUP_BYTES

    def copy(self, source: int, target: int, tokens: int) -> None:
        assert source != target
        self.cells[target, :tokens] = self.cells[source, :tokens]
        self.copied_tokens += tokens
        self._use(target, 0, tokens)

    def clear(self, slab: int, start: int = 0) -> None:
        self.cells[slab, start:] = 0
        self.used[slab] = min(self.used[slab], -(-start // GROUP_TOKENS))
        self.written.append((slab, start))

    def read(self, slab: int, start: int, stop: int) -> Bytes:
        return self.cells[slab, start:stop].copy().view(np.uint8)

    def write(self, slab: int, start: int, stop: int, payload: Bytes) -> None:
        self.cells[slab, start:stop] = payload.view(np.uint64)
        self._use(slab, start, stop)

    def _use(self, slab: int, start: int, stop: int) -> None:
        self.used[slab] = max(self.used[slab], -(-stop // GROUP_TOKENS))
        self.most_used_bytes = max(self.most_used_bytes, self.used_bytes)
        self.written.append((slab, start))


def next_state(state: int, token_id: int) -> int:
    return ((state ^ (token_id + 1)) * 0x9E3779B97F4A7C15 + 0x1234567) % (1 << 64)


@lru_cache(maxsize=4096)
def states(before: int, ids: tuple[int, ...]) -> Sequence[int]:
    found, state = [], before
    for token_id in ids:
        state = next_state(state, token_id)
        found.append(state)
    return tuple(found)


@lru_cache(maxsize=4096)
def _cells(before: int, ids: tuple[int, ...]) -> np.ndarray:
    return np.array(states(before, ids), np.uint64)


def keys_and_values(ids: Sequence[int]) -> np.ndarray:
    """Return the content of each position, which depends on all ids up to it."""
    parts, state = [np.zeros(0, np.uint64)], 0
    for at in range(0, len(ids), SLAB_TOKENS):
        parts.append(_cells(state, tuple(ids[at : at + SLAB_TOKENS])))
        state = int(parts[-1][-1])
    return np.concatenate(parts)


def contents(memory: NumpyMemory, pages: PageTable) -> np.ndarray:
    """Return the content of all positions of a sequence."""
    parts = [memory.cells[slab] for slab in pages.slabs]
    return np.concatenate([np.zeros(0, np.uint64), *parts])[: pages.tokens].copy()


def compute(memory: NumpyMemory, pages: PageTable, ids: Sequence[int]) -> None:
    """Write the positions of `ids`, as an engine's step does: from the positions before."""
    at = pages.tokens
    state = int(contents(memory, pages)[-1]) if at else 0
    new = np.array(states(state, tuple(ids)), np.uint64)
    while len(new):
        index, start = divmod(at, SLAB_TOKENS)
        part = new[: SLAB_TOKENS - start]
        memory.write(pages.slabs[index], start, start + len(part), part.view(np.uint8))
        new, at = new[len(part) :], at + len(part)


def extend(pool: PagePool, memory: NumpyMemory, sequence: KVSequence, ids: Sequence[int]) -> None:
    """Reserve, compute and advance in one go."""
    pool.grow(sequence, len(ids))
    compute(memory, sequence, ids)
    pool.advance(sequence, ids)
