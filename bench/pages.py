"""Sequences over slabs, as the host keeps them, and ways to compute them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from model_host.engine_api import CHUNK_TOKENS, Engine, Logits, Slice
from model_host.kv import SLAB_TOKENS, Bytes


@dataclass(slots=True)
class Pages:
    """The page table of one sequence."""

    slabs: list[int]
    tokens: int = 0


@dataclass
class Memory:
    """An engine, and the slabs of it that a test uses; they are cleared at the end."""

    engine: Engine
    used: set[int] = field(default_factory=set)

    def pages(self, *slabs: int, tokens: int = 0) -> Pages:
        """Return the table of a sequence in these slabs."""
        self.used.update(slabs)
        return Pages(list(slabs), tokens)

    def copy(self, source: Pages, *slabs: int) -> Pages:
        """Return a sequence with copies of another's slabs."""
        copied = self.pages(*slabs, tokens=source.tokens)
        for at, (old, new) in enumerate(zip(source.slabs, slabs, strict=False)):
            held = min(SLAB_TOKENS, source.tokens - at * SLAB_TOKENS)
            if held > 0:
                self.engine.memory.copy(old, new, held)
        return copied

    def step(self, *parts: tuple[Pages, Sequence[int]]) -> list[Logits]:
        """Compute new tokens of several sequences in one step; return the logits of all rows."""
        logits = self.engine.step([Slice(pages, ids, len(ids)) for pages, ids in parts])
        for pages, ids in parts:
            pages.tokens += len(ids)
        return logits

    def last(self, pages: Pages, ids: Sequence[int]) -> Logits:
        """Compute tokens of one sequence in one step; return the logits after the last."""
        (logits,) = self.engine.step([Slice(pages, ids)])
        pages.tokens += len(ids)
        row: Logits = logits[-1]
        return row

    def compute(
        self, pages: Pages, ids: Sequence[int], cuts: Iterable[int] = (CHUNK_TOKENS,) * 16
    ) -> Logits:
        """Compute tokens in pieces of the given sizes; return the logits of every row."""
        rows, at = [], 0
        for size in cuts:
            if part := ids[at : at + size]:
                rows += self.step((pages, part))
            at += size
        assert at >= len(ids), "the pieces hold all tokens"
        return np.concatenate(rows)

    def keys_values(self, pages: Pages) -> Bytes:
        """Return the bytes of all keys and values of a sequence."""
        read, parts = self.engine.memory.read, []
        for at, slab in enumerate(pages.slabs):
            held = min(SLAB_TOKENS, pages.tokens - at * SLAB_TOKENS)
            if held > 0:
                parts.append(read(slab, 0, held))
        return np.concatenate(parts)

    def close(self) -> None:
        """Clear the slabs."""
        for slab in self.used:
            self.engine.memory.clear(slab)
