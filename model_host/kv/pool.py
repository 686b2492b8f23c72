"""The KV caches in memory, several per conversation, within one byte budget (spec/08-checkpoint).

Each branch of a conversation has a context of its own. Their common prefix is copied, so
that an answer in one branch does not discard the context of another.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from model_host.errors import CacheBudgetExceeded, CacheBusy
from model_host.kv.cache import SLAB_TOKENS, KVCache

CONTEXTS_MAX = 4
"""Most contexts of one conversation that stay in memory while they are not in use."""


@dataclass(slots=True, eq=False)
class Context:
    """One context in memory: its cache holds the first `cache.tokens` of its tokens."""

    conversation: bytes
    cache: KVCache
    ids: list[int] = field(default_factory=list)

    def common_tokens(self, ids: Sequence[int]) -> int:
        """Return the number of first tokens of `ids` that the cache holds."""
        held = self.ids[: self.cache.tokens]
        for index, (mine, other) in enumerate(zip(held, ids, strict=False)):
            if mine != other:
                return index
        return min(len(held), len(ids))

    def expect(self, ids: Sequence[int]) -> None:
        """Set the tokens that follow those in the cache, before they are computed."""
        self.ids[self.cache.tokens :] = ids


@dataclass(slots=True, eq=False)
class Hold:
    """A lock on a conversation's memory, and on the context chosen there."""

    conversation: bytes
    context: Context | None = None


class CachePool:
    """The contexts of many conversations within one byte budget; evicts the least recently used.

    Not thread-safe: the thread that owns the engine owns the pool. A context that is held
    is never evicted.
    """

    def __init__(self, make: Callable[[Callable[[int], None]], KVCache], budget_bytes: int) -> None:
        """Build caches with `make(claim)`; use at most `budget_bytes`."""
        self._make = make
        self._budget_bytes = budget_bytes
        self._contexts: list[Context] = []  # the least recently used first
        self._holds: list[Hold] = []
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._contexts)

    def __contains__(self, conversation: bytes) -> bool:
        return any(context.conversation == conversation for context in self._contexts)

    @property
    def nbytes(self) -> int:
        """Return the memory all caches hold, in bytes."""
        return sum(context.cache.nbytes for context in self._contexts)

    @contextmanager
    def hold(self, conversation: bytes) -> Iterator[Hold]:
        """Keep a conversation and its chosen context in memory while the hold is open."""
        hold = Hold(conversation)
        self._holds.append(hold)
        try:
            yield hold
        finally:
            self._holds.remove(hold)
            if hold.context is not None:
                self._touch(hold.context)
                self._trim(conversation)

    def choose(self, hold: Hold, ids: Sequence[int]) -> Context:
        """Return the context in which to compute `ids`, with the longest prefix in memory.

        The prefix never has the last token, whose logits are needed. If another branch
        continues from the same tokens, these are copied and the branch stays. If the budget
        is too small for both, the other branch is truncated; if it is in use, raises
        CacheBusy.
        """
        assert hold.context is None, "a hold is for one context"
        found, tokens = self.closest(hold.conversation, ids[:-1])
        if found is None or (not tokens and found.cache.tokens):
            context = self._add(hold.conversation)
        elif tokens == found.cache.tokens and not self._is_held(found):
            context = found
        else:
            context = self._branch_off(found, tokens, len(ids))
        context.expect(ids[context.cache.tokens :])
        hold.context = context
        self._touch(context)
        return context

    def closest(self, conversation: bytes, ids: Sequence[int]) -> tuple[Context | None, int]:
        """Return the context that holds the most first tokens of `ids`, and their number.

        Of several, one that need not be truncated, then one not in use, then the newest.
        """
        best, best_rank = None, (0, False, False)
        for context in self._contexts:
            if context.conversation == conversation:
                common = context.common_tokens(ids)
                is_whole = common == context.cache.tokens
                rank = (common, is_whole, not self._is_held(context))
                if rank >= best_rank:
                    best, best_rank = context, rank
        return best, best_rank[0]

    def drop(self, conversation: bytes) -> int:
        """Drop all contexts of a conversation; return the number of tokens they held.

        Raises CacheBusy while the conversation is held.
        """
        if any(hold.conversation == conversation for hold in self._holds):
            raise CacheBusy("The conversation's KV cache is in use.")
        dropped = [c for c in self._contexts if c.conversation == conversation]
        self._contexts = [c for c in self._contexts if c.conversation != conversation]
        return sum(context.cache.tokens for context in dropped)

    # --- contexts ---------------------------------------------------------------

    def _add(self, conversation: bytes) -> Context:
        cache = self._make(lambda grown_bytes: self._claim(context, grown_bytes))
        context = Context(conversation, cache)
        self._contexts.append(context)
        return context

    def _branch_off(self, other: Context, tokens: int, total: int) -> Context:
        """Return a context with the first `tokens` of another, reserved for `total` tokens."""
        try:
            return self._copy(other, tokens, total)
        except (CacheBudgetExceeded, CacheBusy):
            if self._is_held(other):
                raise
            other.cache.truncate(tokens)
            return other

    def _copy(self, other: Context, tokens: int, total: int) -> Context:
        copy = self._add(other.conversation)
        pin = Hold(other.conversation, other)
        self._holds.append(pin)
        try:
            copy.cache.reserve(total)
        except (CacheBudgetExceeded, CacheBusy):
            self._contexts.remove(copy)
            raise
        finally:
            self._holds.remove(pin)
        for start in range(0, tokens, SLAB_TOKENS):
            stop = min(start + SLAB_TOKENS, tokens)
            copy.cache.write(start, stop, other.cache.read(start, stop))
        copy.cache.commit(tokens)
        copy.ids = other.ids[:tokens]
        return copy

    # --- budget -----------------------------------------------------------------

    def _is_held(self, context: Context) -> bool:
        return any(hold.context is context for hold in self._holds)

    def _touch(self, context: Context) -> None:
        """Make a context the most recently used."""
        self._contexts.remove(context)
        self._contexts.append(context)

    def _trim(self, conversation: bytes) -> None:
        """Evict the oldest contexts of a conversation that has too many."""
        idle = [
            context
            for context in self._contexts
            if context.conversation == conversation and not self._is_held(context)
        ]
        for context in idle[: max(0, len(idle) - CONTEXTS_MAX)]:
            self._evict(context)

    def _evict(self, context: Context) -> None:
        self._contexts.remove(context)
        self.evictions += 1

    def _claim(self, context: Context, grown_bytes: int) -> None:
        """Evict contexts so that a cache may grow; if that can't suffice, raise and evict none."""
        wanted = context.cache.nbytes + grown_bytes
        if wanted > self._budget_bytes:
            raise CacheBudgetExceeded(
                f"The conversation needs {wanted} bytes of KV memory; "
                f"the host allows {self._budget_bytes}."
            )
        idle = [c for c in self._contexts if c is not context and not self._is_held(c)]
        excess = self.nbytes + grown_bytes - self._budget_bytes
        if excess > sum(other.cache.nbytes for other in idle):
            raise CacheBusy("The KV memory is in use by conversations that generate now.")
        for other in idle:
            if excess <= 0:
                return
            excess -= other.cache.nbytes
            self._evict(other)
