"""The long prompt of the golden file, computed once on the real model in each number format."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.pages import Memory, Pages
from model_host.engine.torch_engine import TorchEngine
from model_host.engine_api import CHUNK_TOKENS, Logits
from model_host.kv import SLAB_TOKENS, Bytes

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "golden" / "smollm2.json").read_text())
LONG = max(range(len(GOLDEN["prompts"])), key=lambda at: len(GOLDEN["prompts"][at]["ids"]))
"""The place of the longest prompt: a slab and a part of a second."""
ROWS = 64


@dataclass(frozen=True, slots=True)
class Prefilled:
    """What an engine has computed for the prompt."""

    ids: list[int]
    rows: Logits
    """The logits after each of the last ROWS tokens."""
    slabs: list[Bytes]
    """The keys and values of each slab, by head, then by position."""
    heads: int

    @classmethod
    def compute(cls, engine: TorchEngine) -> "Prefilled":
        memory, ids = Memory(engine), GOLDEN["prompts"][LONG]["ids"]
        pages = memory.pages(0, 1)
        memory.last(pages, ids[:CHUNK_TOKENS])
        memory.last(pages, ids[CHUNK_TOKENS:-ROWS])
        rows = memory.compute(pages, ids[-ROWS:])
        slabs = [engine.memory.read(0, 0, SLAB_TOKENS)]
        slabs.append(engine.memory.read(1, 0, len(ids) - SLAB_TOKENS))
        memory.close()
        return cls(ids, rows, slabs, engine.config.layers * 2 * engine.config.kv_heads)

    def keys_values(self, tokens: int) -> Bytes:
        """Return those of the first tokens, as `Memory.keys_values` does."""
        parts = []
        for at, slab in enumerate(self.slabs):
            held = min(SLAB_TOKENS, len(self.ids) - at * SLAB_TOKENS)
            wanted = max(0, min(held, tokens - at * SLAB_TOKENS))
            parts.append(slab.reshape(self.heads, held, -1)[:, :wanted].flatten())
        return np.concatenate(parts)

    def restore(self, memory: Memory, pages: Pages, tokens: int) -> None:
        """Write the first tokens of the prompt into the slabs of a sequence."""
        known, at = self.keys_values(tokens), 0
        for slab, start in zip(pages.slabs, range(0, tokens, SLAB_TOKENS), strict=False):
            held = min(SLAB_TOKENS, tokens - start)
            size = held * memory.engine.memory.bytes_per_token
            memory.engine.memory.write(slab, 0, held, known[at : at + size])
            at += size
        pages.tokens = tokens


PrefilledOf = Callable[[str], Prefilled]
"""Returns what was computed in the numerics named."""
