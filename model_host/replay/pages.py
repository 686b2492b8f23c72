"""The pages of one replay, in which it computes chunk by chunk (spec/07-host §10). Pure.

They have a domain of their own, so nothing else is found in them, nor they by others. Between
two chunks a replay holds nothing: what its pages keep may be evicted for a request, and is
computed again then.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from blake3 import blake3

from model_host.engine_api import Engine, Logits, Slice
from model_host.kv import GROUP_TOKENS, SLAB_TOKENS, Losses, PagePool, UnpinnedSource
from model_host.replay.passes import Pass, logits_max


@dataclass(frozen=True, slots=True)
class Computed:
    """A chunk of `tokens` that was computed: its end, and the logits [n, V] of the rows wanted."""

    stop: int
    tokens: int
    rows: Sequence[int]
    logits: Logits


@dataclass(frozen=True, slots=True)
class Compared:
    """The cached positions of a slab, from `start`, that were compared with computed ones."""

    start: int
    tokens: int
    differs_at: int | None = None
    """The first position that differs; None if all are equal."""


class ReplayPages:
    """The pages of one replay; each call is made between two steps of the engine."""

    def __init__(self, engine: Engine, pool: PagePool, key: bytes) -> None:
        """`key`, 32 random bytes, names a domain and conversation that nobody else has."""
        self._engine = engine
        self._pool = pool
        self._key = key
        self._losses = Losses()
        self._computed = 0
        """The end of the last chunk, unless its pages were evicted."""

    def move(self, engine: Engine, pool: PagePool) -> None:
        """Go on in another pool, of the same profile loaded again; what was computed is lost."""
        self._engine, self._pool = engine, pool

    def compute(self, part: Pass, at: int, rows_max: int) -> Computed:
        """Compute the next chunk of a pass of which the first `at` positions were computed.

        Where some of these were evicted, they come first, and no row of them is wanted. Raises
        CacheBusy or CacheBudgetExceeded if requests hold the memory, and CacheBusy behind many
        losses.
        """
        sequence = self._pool.open(part.ids[: at + 1], self._key, self._key)
        try:
            found = sequence.tokens
            if found < min(at, self._computed):
                self._losses.note()
            if found < at:
                stop, rows = min(at, found + rows_max), list[int]()
            else:
                stop, rows = part.chunk(at, rows_max, logits_max(self._engine.config.vocab))
            ids = part.ids[found:stop]
            self._pool.grow(sequence, len(ids))
            (logits,) = self._engine.step([Slice(sequence, ids, [row - found for row in rows])])
            self._pool.advance(sequence, ids)
            self._computed = stop
        finally:
            self._pool.close(sequence)
        return Computed(stop, len(ids), rows, logits)

    def leave(self, done: Pass, upcoming: Pass | None) -> None:
        """Free the pages of a pass but for those that the one after it begins with."""
        kept = None
        if upcoming is not None:
            kept = self._pool.open(upcoming.ids[: upcoming.start + 1], self._key, self._key)
        # One more id, since the last token of a context is never found.
        self._pool.drop(self._pool.open((*done.ids, 0), self._key, self._key))
        if kept is not None:
            self._pool.close(kept)

    def compare(self, part: Pass, start: int, conversation: bytes) -> Compared:
        """Compare one slab of a pass, from position `start`, with what a conversation has cached.

        Digests are compared over the bytes of groups of 64 positions, and of each in one that
        differs: where a context ends, the difference may lie behind it.
        """
        stop = min(len(part.ids), (start // SLAB_TOKENS + 1) * SLAB_TOKENS)
        ids, cached = part.ids[:stop], self._pool.cached
        sources = [cached.unpinned(ids, key) for key in (self._key, conversation)]
        stop = min(source.tokens for source in sources)
        differs_at = None
        for at in range(start, stop, GROUP_TOKENS):
            end = min(at + GROUP_TOKENS, stop)
            if _differ(sources, at, end):
                differs_at = next(i for i in range(at, end) if _differ(sources, i, i + 1))
                break
        return Compared(start, max(stop - start, 0), differs_at)

    def free(self) -> None:
        """Free all pages."""
        self._pool.cached.evict(self._key)


def _differ(sources: Sequence[UnpinnedSource], start: int, stop: int) -> bool:
    """Say whether sources differ from a position up to another, by the digests of their bytes."""
    return len({blake3(source.read(start, stop).tobytes()).digest() for source in sources}) > 1
