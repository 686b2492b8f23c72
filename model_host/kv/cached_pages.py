"""The cached pages of conversations, running or not: read, pinned, listed, evicted. Pure.

Each call is about the pages that one conversation uses itself, and shows nothing of others
unless it says so (spec/08-checkpoint §6).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from model_host.errors import CacheBudgetExceeded, CacheBusy
from model_host.kv.lineage import Lineage
from model_host.kv.lookup import Conversation, Match, chain
from model_host.kv.prefix import PrefixIndex
from model_host.kv.slabs import SLAB_GROUPS, Slabs
from model_host.kv.unpinned import UnpinnedSource

CONVERSATIONS_MAX = 16384
"""Conversations with cached pages that are kept, besides pinned and running ones."""
PINS_MAX = 1024
"""Most pins of a pool; together they hold at most half of its memory."""


@dataclass(frozen=True, slots=True)
class CachedSlab:
    """One slab that a conversation uses, for its owner or the operator."""

    index: int
    """Number of slabs before it."""
    tokens: int
    shared_with: int
    """Number of other conversations that use it. Nobody but the owner may learn it (PAGE-8)."""
    running: int
    """Number of sequences that hold it now."""
    pinned_until: float | None


class CachedPages:
    """The pages of each conversation of a pool, by its id."""

    def __init__(self, index: PrefixIndex, slabs: Slabs) -> None:
        """Look up and change the nodes of `index`."""
        self._index = index
        self._users, self._holds = index.users, index.holds
        self._slabs = slabs

    def domain(self, conversation: bytes) -> bytes | None:
        """Return the sharing domain of a conversation with pages; None if it has none."""
        user = self._users.conversations.get(conversation)
        return user.domain if user is not None else None

    def unpinned(self, ids: Sequence[int], conversation: bytes) -> UnpinnedSource:
        """Return the cached prefix of a context, for a checkpoint; it may be evicted meanwhile.

        It has the pages that the conversation uses itself, the last token included.
        """
        _, found = self._own(ids, conversation)
        lineage = Lineage(b"", ids[: found.tokens])

        def find() -> Match:
            return self._own(ids, conversation)[1]

        return UnpinnedSource(find, lineage, self._slabs.memory)

    def evict_all(self) -> None:
        """Evict the pages of every conversation in which nothing runs, pinned ones too."""
        for user in list(self._users.conversations.values()):
            if not user.holders:
                self._index.forget(user)

    def pages(self, conversation: bytes) -> list[CachedSlab]:
        """Return the slabs a conversation uses, those nearest to its beginning first."""
        user = self._users.conversations.get(conversation)
        if user is None:
            return []
        pins = {node: at for (owner, node), at in self._holds.pins.items() if owner is user}
        return [
            CachedSlab(
                index=node.index,
                tokens=node.tokens,
                shared_with=len(node.users) - 1,
                running=node.holds - node.pins,
                pinned_until=pins.get(node),
            )
            for node in sorted(user.nodes, key=lambda node: (node.index, node.serial))
        ]

    def peek(self, ids: Sequence[int], conversation: bytes, domain: bytes) -> tuple[int, int]:
        """Return how many first tokens of a context the conversation's own pages hold, and all.

        `domain` is the one it would be opened in. This is no use: nothing is evicted later,
        or found sooner, because of it.
        """
        return self._index.peek(ids, conversation, domain)

    def evict(self, conversation: bytes) -> int:
        """Evict all pages of a conversation, pinned ones too; return the tokens they held.

        Those that other conversations use as well stay in memory, but are found by them
        alone or as shared; the number does not tell. Raises CacheBusy while a sequence of
        the conversation runs or a reader holds its pages; nothing is evicted then.
        """
        user = self._users.conversations.get(conversation)
        if user is None:
            return 0
        if user.holders:
            raise CacheBusy("The conversation's KV cache is in use.")
        return self._index.forget(user)

    def pin(self, ids: Sequence[int], conversation: bytes, until: float) -> int:
        """Keep the cached prefix of a context until a time; return its length in tokens.

        The time is in seconds of the caller's clock; see `expire_pins`. Raises
        CacheBudgetExceeded if pins would hold more than half of the memory, or are too many.
        """
        user, found = self._own(ids, conversation)
        if user is None or found.node is None:
            return 0
        more = sum(not node.pins for node in chain(found.node))
        slabs = self._holds.pinned_slabs + more
        if 2 * slabs * SLAB_GROUPS > self._slabs.capacity_groups:
            raise CacheBudgetExceeded(f"{slabs} pinned slabs are over half of the host's memory.")
        if len(self._holds.pins) >= PINS_MAX:
            raise CacheBudgetExceeded(f"The host keeps at most {PINS_MAX} pins.")
        self._holds.pin(user, found.node, until)
        return found.tokens

    def expire_pins(self, now: float) -> None:
        """Undo the pins whose time has come."""
        for pin, until in list(self._holds.pins.items()):
            if until <= now:
                self._holds.unpin(*pin)

    def forget_oldest(self) -> None:
        """Evict the least recently used conversation, if there are too many."""
        if len(self._users.conversations) <= CONVERSATIONS_MAX:
            return
        pinned = {user for user, _ in self._holds.pins}
        for user in self._users.conversations.values():
            if not user.holders and user not in pinned:
                self._index.forget(user)
                return

    def _own(self, ids: Sequence[int], conversation: bytes) -> tuple[Conversation | None, Match]:
        """Return a conversation and the prefix of `ids` that it uses; None if there is none."""
        user = self._users.conversations.get(conversation)
        if user is None:
            return None, Match(None, 0)
        _, own = self._index.find(user, ids)
        return (user if own.tokens else None), own
