"""The conversations that a program asks for by their ids, as long as it asks."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from replica.conversation import is_absent
from replica.ids import ConversationId
from replica.io import Replica


class AskedFor:
    """Follows what is asked for, and goes on with what is here then.

    An id may be anybody's invention: each one that is followed takes memory, and is asked for at
    the hub again and again.
    """

    def __init__(self, replica: Replica) -> None:
        """Follow through `replica`."""
        self._replica = replica
        self._callers: Counter[ConversationId] = Counter()
        self._new: set[ConversationId] = set()
        """Those that were not followed before."""

    @asynccontextmanager
    async def following(self, conversation: ConversationId) -> AsyncIterator[None]:
        """Follow a conversation; behind the last such block only if anything of it is here."""
        self._callers[conversation] += 1
        if not self._replica.follows(conversation):
            self._new.add(conversation)
        try:
            await self._replica.follow(conversation)
            yield
        finally:
            self._callers[conversation] -= 1
            if not self._callers[conversation]:
                del self._callers[conversation]
                self._leave(conversation)

    def _leave(self, conversation: ConversationId) -> None:
        is_new = conversation in self._new
        self._new.discard(conversation)
        if is_new and not self._replica.is_closed:
            held = self._replica.shelf.get(conversation)
            if held is None or is_absent(held):
                self._replica.unfollow(conversation)
