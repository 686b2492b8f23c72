"""The audit of restored pages: a sample is computed again and compared (spec/08-checkpoint §7).

Pure. A digest shows that bytes are those that were written, not that they were right: a
fault of the machine that wrote them, or a stolen key, would be restored for ever. The audit
runs while there is nothing else to compute, one group of 64 tokens at a time.

Not thread-safe: the thread that owns the engine owns the auditor.
"""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from model_host.engine_api import Engine, Slice
from model_host.errors import CacheBudgetExceeded, CacheBusy, CheckpointDropped
from model_host.kv import SLAB_TOKENS, Bytes, PagePool, PageStore, piece_bounds
from replica.ids import short

log = logging.getLogger(__name__)

RESTORED_MAX = 64
"""Restored contexts that wait to be sampled; the oldest are forgotten."""
SAMPLE_GROUPS = 2
"""Groups of each restored context that are computed again."""

Choose = Callable[[int], int]
"""Returns a random number below its argument, at least 1."""


@dataclass(frozen=True, slots=True)
class Restored:
    """Positions of a context that were restored."""

    conversation: bytes
    namespace: bytes
    """Digest of the namespace of stored pages."""
    ids: tuple[int, ...]
    """The tokens up to the last one restored."""
    start: int
    """The first position restored, the start of a group."""


@dataclass(slots=True)
class AuditCounters:
    """Counts of groups since start."""

    audited: int = 0
    mismatches: int = 0


class Auditor:
    """Computes samples of restored groups again."""

    def __init__(self, engine: Engine, pool: PagePool, pages: PageStore, choose: Choose) -> None:
        """Compute with `engine` in `pool` what came from `pages`; `choose` draws the samples."""
        self.counters = AuditCounters()
        self._engine = engine
        self._pool = pool
        self._pages = pages
        self._choose = choose
        self._samples: deque[tuple[Restored, int, int]] = deque()

    @property
    def is_idle(self) -> bool:
        """Say whether there is nothing to audit."""
        return not self._samples

    def add(self, restored: Restored) -> None:
        """Draw a sample of a restored context. An engine that is not bitwise can't compare."""
        if not self._engine.bitwise:
            return
        bounds = piece_bounds(restored.start, len(restored.ids))
        for _ in range(min(SAMPLE_GROUPS, len(bounds))):
            start, stop = bounds.pop(self._choose(len(bounds)))
            self._samples.append((restored, start, stop))
        while len(self._samples) > RESTORED_MAX * SAMPLE_GROUPS:
            self._samples.popleft()

    def audit_next(self) -> None:
        """Audit one group, while nothing runs.

        If its bytes are wrong, no stored page of the namespace is used any more. What was
        computed after it is wrong too, so all that is cached in memory goes.
        """
        restored, start, stop = self._samples.popleft()
        try:
            source = self._pool.cached.unpinned(restored.ids, restored.conversation)
            held = source.read(start, stop)
            computed = self._compute(restored, start, stop)
        except (CheckpointDropped, CacheBusy, CacheBudgetExceeded):
            return  # the pages have been evicted, or there is no memory beside them
        if computed is None:
            return
        self.counters.audited += 1
        if np.array_equal(held, computed):
            return
        self.counters.mismatches += 1
        log.error("restored page wrong", extra={"conversation": short(restored.conversation)})
        self._samples.clear()
        self._pages.distrust(restored.namespace)
        self._pool.cached.evict_all()

    def _compute(self, restored: Restored, start: int, stop: int) -> Bytes | None:
        """Compute one group after the prefix in memory; None if that is not there any more."""
        pool, ids = self._pool, restored.ids
        # The readers may have changed since, and the domain with them (PAGE-9).
        domain = pool.cached.domain(restored.conversation)
        if domain is None:
            return None
        sequence = pool.open(ids[: start + 1], domain, restored.conversation)
        try:
            if sequence.tokens != start:
                return None
            pool.grow(sequence, stop - start)
            self._engine.step([Slice(sequence, ids[start:stop], 0)])
            at = start % SLAB_TOKENS
            slab = sequence.slabs[start // SLAB_TOKENS]
            return self._engine.memory.read(slab, at, at + stop - start)
        finally:
            pool.close(sequence)
