"""A pool over a small memory, in which contexts are answered one after the other."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from model_host.kv.page_pool import PagePool
from model_host.kv.sequences import KVSequence
from tests.model_host.kv.paged import SLAB_BYTES, NumpyMemory, contents, extend, keys_and_values

D, E = b"d" * 32, b"e" * 32
A, B, C = b"a", b"b", b"c"


@dataclass(frozen=True, slots=True)
class CachedSlab:
    """One slab that a conversation uses."""

    index: int
    """Number of slabs before it."""
    tokens: int
    shared_with: int
    """Number of other conversations that use it."""
    running: int
    """Number of sequences that hold it now."""
    pinned_until: float | None


def slabs_of(pool: PagePool, conversation: bytes) -> list[CachedSlab]:
    """Return the slabs that a conversation uses, those nearest to its beginning first."""
    users, pins = pool._index.users, pool._index.holds.pins
    user = users.conversations.get(conversation)
    if user is None:
        return []
    return [
        CachedSlab(
            index=node.index,
            tokens=node.tokens,
            shared_with=len(node.users) - 1,
            running=node.holds - node.pins,
            pinned_until=pins.get((user, node)),
        )
        for node in sorted(user.nodes, key=lambda node: (node.index, node.serial))
    ]


class Pooled:
    """A pool with room for `slabs` slabs of tokens."""

    def __init__(self, slabs: float = 40) -> None:
        self.memory = NumpyMemory(100)
        budget = int((slabs + 1) * SLAB_BYTES)
        self.pool = PagePool(self.memory, tail_slots=4, budget_bytes=budget)

    def begin(self, ids: Sequence[int], key: bytes = A, domain: bytes = D) -> KVSequence:
        """Open a context, and compute all of it but the last token."""
        sequence = self.pool.open(ids, domain, key)
        assert np.array_equal(
            contents(self.memory, sequence), keys_and_values(ids)[: sequence.tokens]
        )
        if more := ids[sequence.tokens : -1]:
            extend(self.pool, self.memory, sequence, more)
        self.pool.check_integrity()
        return sequence

    def answer(self, ids: Sequence[int], key: bytes = A, domain: bytes = D) -> int:
        """Compute a whole context and close it; return the number of tokens found."""
        sequence = self.begin([*ids, 0], key, domain)
        self.pool.close(sequence)
        self.pool.check_integrity()
        return sequence.cached_tokens
