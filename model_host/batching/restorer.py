"""Restoring the prefix of a context from the store, where that is sooner (spec/08-checkpoint).

Pure: a clock is given. Not thread-safe.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence

from model_host.batching.audit import RESTORED_MAX, Restored
from model_host.batching.counters import BatchCounters
from model_host.batching.job import Job
from model_host.errors import CheckpointError, CheckpointMissing
from model_host.kv import KVSequence, PagePool, PageStore, RestoreCost

log = logging.getLogger(__name__)


class Restorer:
    """Lengthens the prefixes found in memory by those of the store."""

    def __init__(
        self,
        pool: PagePool,
        pages: PageStore,
        counters: BatchCounters,
        *,
        token_bytes: int,
        clock: Callable[[], float],
    ) -> None:
        """Restore from `pages` into `pool`, whose positions have `token_bytes` bytes each.

        `clock` returns seconds, to measure restores.
        """
        self.cost = RestoreCost()
        self.restored: deque[Restored] = deque(maxlen=RESTORED_MAX)
        """The contexts restored lately, for an audit."""
        self._pool = pool
        self._pages = pages
        self._counters = counters
        self._token_bytes = token_bytes
        self._clock = clock

    def restore(self, job: Job, sequence: KVSequence) -> int:
        """Restore for a run; see `restore_prefix`."""
        return self.restore_prefix(job.conversation, job.namespace, job.ids, sequence)

    def restore_prefix(
        self, conversation: bytes, namespace: bytes, ids: Sequence[int], sequence: KVSequence
    ) -> int:
        """Restore a stored prefix that reaches further than memory; return the tokens it added.

        A failure is counted and never raised: the tokens are computed instead. Raises
        CacheBusy, if there is no memory for them.
        """
        before = sequence.tokens
        began = self._clock()
        try:
            stored = self._pages.find(conversation, namespace, ids, before)
            found = self._clock()
            if not self.cost.decide(stored.tokens - before, self._token_bytes):
                self._counters.declined += 1
                return 0
            with self._pool.restoring(sequence, ids[: stored.tokens]) as staging:
                start = staging.tokens
                self._pages.load(stored, staging)
        except CheckpointMissing:
            return 0
        except CheckpointError as error:
            self._counters.fallbacks += 1
            log.warning(
                "checkpoint not used", extra={"reason": error.reason, "detail": error.detail}
            )
            return 0
        self._counters.restores += 1
        self.cost.observe_restored(
            find_s=found - began,
            load_s=self._clock() - found,
            nbytes=(stored.tokens - start) * self._token_bytes,
        )
        first = tuple(ids[: stored.tokens])
        self.restored.append(Restored(conversation, namespace, first, start))
        # Whole groups are restored, an incomplete one in memory too.
        return sequence.tokens - start
