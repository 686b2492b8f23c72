"""Prefill: many tokens appended to a cache in steps, with cancellation (spec/07-host §4).

Between two steps the loop reports its progress and checks for cancellation. It uses no
clock and no thread; a cancellation may come from another thread.
"""

from collections.abc import Callable, Sequence

from model_host.engine_api import CHUNK_TOKENS, Engine, Logits, Slice
from model_host.errors import PrefillCancelled
from model_host.kv import KVCache
from model_host.refusals import ContextTooLong


class Cancellation:
    """A flag that ends a run between two steps; any thread may set it, once."""

    __slots__ = ("_is_set",)

    def __init__(self) -> None:
        """Start unset."""
        self._is_set = False

    @property
    def is_set(self) -> bool:
        """Say whether the flag is set."""
        return self._is_set

    def set(self) -> None:
        """End the run before its next step."""
        self._is_set = True


def prefill(
    engine: Engine,
    cache: KVCache,
    ids: Sequence[int],
    *,
    cancellations: Sequence[Cancellation] = (),
    on_progress: Callable[[int], None] = lambda _done: None,
) -> Logits:
    """Append `ids`, at least one, to a cache; return the logits after the last, [V].

    `on_progress(done)` is called after each step, with the number of tokens done. Raises
    PrefillCancelled before a step once one of `cancellations` is set; the cache keeps the
    finished steps. Raises ContextTooLong, CacheBudgetExceeded or CacheBusy before any step.
    """
    assert ids, "at least one token is left to compute"
    _reserve(engine, cache, len(ids))
    for done in range(0, len(ids), CHUNK_TOKENS):
        if any(cancellation.is_set for cancellation in cancellations):
            raise PrefillCancelled
        part = ids[done : done + CHUNK_TOKENS]
        is_last = done + len(part) == len(ids)
        (logits,) = engine.step([Slice(cache, part, logits=int(is_last))])
        on_progress(done + len(part))
    last: Logits = logits[-1]
    return last


def _reserve(engine: Engine, cache: KVCache, tokens: int) -> None:
    """Reserve memory for all tokens at once. Raises as `prefill` does before any step."""
    total = cache.tokens + tokens
    if total > engine.config.context_tokens:
        raise ContextTooLong(
            f"{total} tokens exceed the context of {engine.config.context_tokens}."
        )
    cache.reserve(total)
