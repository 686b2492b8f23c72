"""Positions in one array: a PageSource and a PageTarget without slabs."""

from collections.abc import Sequence

import numpy as np

from model_host.kv.memory import Bytes
from model_host.kv.page_store import PageStore

TOKEN_BYTES = 96


class PlainPages:
    """The bytes of a context's positions; `tokens` of them are written."""

    bytes_per_token = TOKEN_BYTES

    def __init__(self, rows: np.ndarray | None = None) -> None:
        self._rows = np.zeros((0, TOKEN_BYTES), np.uint8) if rows is None else rows

    @property
    def tokens(self) -> int:
        return len(self._rows)

    def read(self, start: int, stop: int) -> Bytes:
        assert stop <= self.tokens
        return self._rows[start:stop].flatten()

    def write(self, stop: int, payload: Bytes) -> None:
        rows = payload.reshape(-1, TOKEN_BYTES)
        assert self.tokens + len(rows) == stop
        self._rows = np.concatenate([self._rows, rows])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlainPages) and np.array_equal(self._rows, other._rows)

    __hash__ = None  # type: ignore[assignment]


def filled(tokens: int, seed: int = 1) -> PlainPages:
    """Return positions of random bytes, the same first ones for the same seed."""
    rows = np.random.default_rng(seed).integers(0, 256, (4_096, TOKEN_BYTES), np.uint8)
    return PlainPages(rows[:tokens])


def computed(ids: Sequence[int]) -> PlainPages:
    """Return positions of which each depends on all tokens up to it."""
    state, rows = 1, []
    for token_id in ids:
        state = (state * 31 + token_id + 1) % 1_000_003
        rows.append([state >> (8 * place) & 255 for place in range(4)] * (TOKEN_BYTES // 4))
    return PlainPages(np.array(rows, np.uint8).reshape(-1, TOKEN_BYTES))


def restore(
    store: PageStore,
    conversation: bytes,
    namespace: bytes,
    ids: Sequence[int],
    memory: PlainPages | None = None,
) -> PlainPages:
    """Return what is in memory, up to a group's start, extended by what is stored."""
    held = memory or PlainPages()
    stored = store.find(conversation, namespace, ids, held.tokens)
    target = PlainPages(held._rows[: held.tokens // 64 * 64])
    store.load(stored, target)
    assert target.tokens == stored.tokens
    return target
