"""The listed conversations that are open, by the time of their last use and by creator. Pure."""

from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from itertools import islice

from replica.ids import ConversationId, PublicKey
from replica.limits import STALE_S

LOOKED_AT_MAX = 256
"""Open conversations that are looked at to find one to close, those idle for longest."""


class Use(Enum):
    """The present use of an open conversation."""

    NONE = "none"
    ASKED = "asked"
    """A request in it waits for this replica."""
    HELD = "held"
    """It can't be closed now."""


Creator = PublicKey | None
"""None where a hub does not say it."""
UseOf = Callable[[ConversationId], Use]


class OpenListed:
    """The open conversations; the one used longest ago comes first."""

    def __init__(self) -> None:
        """Start with none."""
        self.used_at: dict[ConversationId, float] = {}
        self._creator: dict[ConversationId, Creator] = {}
        self._of: dict[Creator, dict[ConversationId, None]] = {}

    def __contains__(self, conversation: ConversationId) -> bool:
        return conversation in self.used_at

    def __len__(self) -> int:
        return len(self.used_at)

    def __iter__(self) -> Iterator[ConversationId]:
        return iter(self.used_at)

    def count_of(self, creator: Creator) -> int:
        """Return how many of a creator's conversations are open."""
        return len(self._of.get(creator, ()))

    def add(self, conversation: ConversationId, creator: Creator, now: float) -> None:
        """Add one that is not open."""
        self.used_at[conversation] = now
        self._creator[conversation] = creator
        self._of.setdefault(creator, {})[conversation] = None

    def touch(self, conversation: ConversationId, now: float) -> None:
        """Note that a conversation is in use; it need not be open."""
        if conversation in self.used_at:
            creator = self._creator[conversation]
            self.remove(conversation)
            self.add(conversation, creator, now)

    def remove(self, conversation: ConversationId) -> None:
        """Remove a conversation, if it is open."""
        if self.used_at.pop(conversation, None) is not None:
            creator = self._creator.pop(conversation)
            of_creator = self._of[creator]
            del of_creator[conversation]
            if not of_creator:
                del self._of[creator]

    def idlest(self, now: float, use_of: UseOf) -> ConversationId | None:
        """Return the one to close in place of another; None if none may be closed."""
        return self._idlest(self.used_at, now, use_of)

    def idlest_of(self, creator: Creator, now: float, use_of: UseOf) -> ConversationId | None:
        """Return the one to close in place of another of its creator; None as above."""
        return self._idlest(self._of.get(creator, ()), now, use_of)

    def _idlest(
        self, among: Iterable[ConversationId], now: float, use_of: UseOf
    ) -> ConversationId | None:
        stale = None
        for conversation in islice(among, LOOKED_AT_MAX):
            use = use_of(conversation)
            if use is Use.NONE:
                return conversation
            if use is Use.ASKED and now >= self.used_at[conversation] + STALE_S:
                stale = stale or conversation
        return stale

    def close_idle(self, now: float, idle_s: float, use_of: UseOf) -> Iterator[ConversationId]:
        """Remove those without a use for `idle_s`, and yield them."""
        while self.used_at:
            conversation, used_at = next(iter(self.used_at.items()))
            if now < used_at + idle_s:
                return
            if use_of(conversation) is Use.NONE:
                self.remove(conversation)
                yield conversation
            else:
                self.touch(conversation, now)
