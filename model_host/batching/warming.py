"""The computation of a context without an answer, chunk by chunk (spec/07-host §6). Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from model_host.batching.job import Found
from model_host.engine_api import Engine, Slice
from model_host.kv import KVSequence, PagePool

WARM_ROWS = 128
"""Tokens of one chunk: a request that comes meanwhile waits for one."""

Restore = Callable[[Sequence[int], KVSequence], int]
"""Restore a stored prefix of a context into a sequence; return the tokens it added."""


@dataclass(frozen=True, slots=True)
class Warmed:
    """The first tokens of a context with keys and values, after a chunk."""

    tokens: int
    own_tokens: int
    """Of these, tokens taken from the conversation's own pages by the chunk (PAGE-8)."""
    restored_tokens: int = 0
    """Of these, tokens restored from a checkpoint with this chunk."""
    kept_tokens: int = 0
    """Of these, tokens that stay in memory for some time, once the context is whole."""


def warm_chunk(
    engine: Engine,
    pool: PagePool,
    ids: Sequence[int],
    domain: bytes,
    conversation: bytes,
    restore: Restore | None = None,
) -> Warmed:
    """Compute the next WARM_ROWS tokens of a context that have no keys and values yet.

    With `restore`, a stored prefix is restored instead, where there is one and that is sooner.
    Nothing stays reserved between two chunks: what is computed is cached like the pages of a
    run that has ended. Raises CacheBudgetExceeded or CacheBusy.
    """
    # The last token of a context is always left to compute; one more lets `ids` be found whole.
    sequence = pool.open([*ids, 0], domain, conversation)
    try:
        restored = restore((*ids, 0), sequence) if restore is not None else 0
        found = Found.before_steps(sequence, restored)
        if restored:
            return Warmed(sequence.tokens, found.cached_tokens, restored)
        part = ids[sequence.tokens : sequence.tokens + WARM_ROWS]
        if part:
            pool.grow(sequence, len(part))
            engine.step([Slice(sequence, part)])
            pool.advance(sequence, part)
        return Warmed(sequence.tokens, found.cached_tokens)
    finally:
        pool.close(sequence)
