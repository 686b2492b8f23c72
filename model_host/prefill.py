"""Prefill: many tokens brought into a cache step by step, until told to stop (spec/07-host §4).

Between two steps the loop reports how far it is and asks whether to go on. It knows no
clock and no thread; who cancels may be in another one.
"""

from collections.abc import Callable, Sequence

from model_host.engine_api import CHUNK_TOKENS, Engine, Logits, Slice
from model_host.errors import PrefillCancelled
from model_host.kv import KVCache
from model_host.refusals import ContextTooLong


class Cancellation:
    """Tells a run to end between two steps; set once, by any thread."""

    __slots__ = ("_is_set",)

    def __init__(self) -> None:
        """Start unset."""
        self._is_set = False

    @property
    def is_set(self) -> bool:
        """Say whether the run is to end."""
        return self._is_set

    def set(self) -> None:
        """Tell the run to end before its next step."""
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

    `on_progress(done)` is called after each step, with the tokens done. Raises
    PrefillCancelled before a step where one of `cancellations` is set: the cache keeps the
    finished steps. Raises ContextTooLong, CacheBudgetExceeded or CacheBusy before any step.
    """
    assert ids, "at least one token is always left to compute"
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
    """Refuse before any work what can't fit, and grow once instead of per step."""
    total = cache.tokens + tokens
    if total > engine.config.context_tokens:
        raise ContextTooLong(
            f"{total} tokens exceed the context of {engine.config.context_tokens}."
        )
    cache.reserve(total)
