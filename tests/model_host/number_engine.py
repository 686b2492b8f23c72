"""An engine whose keys and values are numbers: the same tokens after the same tokens, always."""

from collections.abc import Sequence

import numpy as np

from model_host.engine_api import CHUNK_TOKENS, Logits, Slice
from model_host.kv.memory import SLAB_TOKENS
from model_host.kv.namespace import Namespace
from model_host.model_config import ModelConfig
from tests.model_host.kv.paged import NumpyMemory, compute, keys_and_values

VOCAB = 97


def logits_after(state: int, words: int = VOCAB) -> Logits:
    """Return logits [V] whose best token, one of the first `words`, depends on all before."""
    row = np.zeros(VOCAB, np.float32)
    row[(state >> 7) % words] = 1
    return row


def answer(prompt: Sequence[int], count: int, words: int = VOCAB) -> list[int]:
    """Return the greedy answer to a prompt, computed without pages or batches."""
    ids = list(prompt)
    for _ in range(count):
        ids.append(int(np.argmax(logits_after(int(keys_and_values(ids)[-1]), words))))
    return ids[len(prompt) :]


class NumberEngine:
    """An Engine over NumpyMemory; notes the rows of each step."""

    numerics = "numbers"
    numerics_class = b"numbers".ljust(32, b".")
    bitwise = True
    config = ModelConfig(
        layers=1, width=8, heads=1, kv_heads=1, head_width=8, ffn_width=8, vocab=VOCAB,
        context_tokens=4_096, rope_base=1e4, rms_eps=1e-5, tied=True,
    )  # fmt: skip

    def __init__(self, slabs: int = 40) -> None:
        self.memory = NumpyMemory(slabs)
        self.steps: list[list[int]] = []
        self.fails: set[int] = set()
        """Tokens that no step computes."""
        self.words = VOCAB
        """Tokens that answers have."""

    def namespace(self, salt: bytes) -> Namespace:
        empty = bytes(32)
        return Namespace(empty, empty, "", "", "", "", "", self.numerics_class, salt)

    def step(self, batch: Sequence[Slice]) -> list[Logits]:
        rows = [len(part.ids) for part in batch]
        assert 0 < sum(rows) <= CHUNK_TOKENS
        assert len({id(part.pages) for part in batch}) == len(batch)
        self._check_owners(batch)
        if any(token in self.fails for part in batch for token in part.ids):
            raise RuntimeError("a token that no step computes")
        self.steps.append(rows)
        return [self._append(part) for part in batch]

    def _check_owners(self, batch: Sequence[Slice]) -> None:
        """Check that no slab that is written belongs to two sequences."""
        written = [
            part.pages.slabs[at // SLAB_TOKENS]
            for part in batch
            for at in {part.pages.tokens, part.pages.tokens + len(part.ids) - 1}
        ]
        slabs = {(slab, index) for index, slab in enumerate(written)}
        assert len({slab for slab, _ in slabs}) >= len(batch)

    def _append(self, part: Slice) -> Logits:
        compute(self.memory, part.pages, part.ids)
        rows = np.zeros((len(part.wanted), VOCAB), np.float32)
        for row, wanted in zip(rows, part.wanted, strict=True):
            at = part.pages.tokens + wanted
            state = self.memory.cells[part.pages.slabs[at // SLAB_TOKENS], at % SLAB_TOKENS]
            row[:] = logits_after(int(state), self.words)
        return rows
