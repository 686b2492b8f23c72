"""The cached pages of conversations, running or not: read, pinned, listed, evicted. Pure.

Each call is about the pages that one conversation uses itself, and shows nothing of others
unless it says so (spec/08-checkpoint §6).
"""

from collections.abc import Sequence

from model_host.errors import CacheBudgetExceeded, CacheBusy
from model_host.kv.lineage import Lineage
from model_host.kv.lookup import Conversation, Match, chain
from model_host.kv.prefix import PrefixIndex
from model_host.kv.sequences import total_groups
from model_host.kv.slabs import SLAB_GROUPS, Slabs
from model_host.kv.unpinned import UnpinnedSource
from replica.limits import PINS_MAX

CONVERSATIONS_MAX = 16384
"""Conversations with cached pages that are kept, besides pinned and running ones."""


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

    def pin(
        self, ids: Sequence[int], conversation: bytes, until: float, *, room_tokens: int = 0
    ) -> int:
        """Keep the cached prefix of a context until a time; return its length in tokens.

        The time is in seconds of the caller's clock; see `expire_pins`. Beside all pins there
        is room for a context of `room_tokens`, so that no run fails because of them. Raises
        CacheBudgetExceeded for a prefix that alone is over half of the memory, and CacheBusy
        if pins together would be, or are too many; nothing is pinned then.
        """
        user, found = self._own(ids, conversation)
        if user is None or found.node is None:
            return 0
        nodes = list(chain(found.node))
        capacity = self._slabs.capacity_groups
        groups_max = max(0, min(capacity // 2, capacity - total_groups(room_tokens)))
        slabs_max = groups_max // SLAB_GROUPS
        if len(nodes) > slabs_max:
            raise CacheBudgetExceeded(
                f"{len(nodes)} slabs to keep; the host keeps at most {slabs_max}."
            )
        slabs = self._holds.pinned_slabs + sum(not node.pins for node in nodes)
        is_new = (user, found.node) not in self._holds.pins
        if slabs > slabs_max or (is_new and len(self._holds.pins) >= PINS_MAX):
            raise CacheBusy(f"The host keeps {slabs_max} slabs in {PINS_MAX} contexts at most.")
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
