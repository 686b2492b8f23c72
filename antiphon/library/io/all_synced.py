"""Whether all conversations of a replica have been in sync with its hub since a call."""

import time
from collections.abc import Awaitable, Callable, Iterable, Set

from replica.ids import ConversationId
from replica.io import HubStatus, Replica
from replica.link import Event, Forgotten


class AllSynced:
    """The conversations that are still to be in sync, each as of when it was known."""

    def __init__(self, hub: HubStatus, listed: Set[ConversationId]) -> None:
        """Compare with those that the hub lists, now and from now on; `begin` with those here."""
        self._hub = hub
        self._stored: frozenset[ConversationId] = frozenset()
        self._listed = listed
        self._listed_count = 0
        self._known: set[ConversationId] = set()
        self._left: dict[ConversationId, float] = {}
        self._may_be_gone: set[ConversationId] = set()
        """Those to look for in the store."""
        self._refused: set[ConversationId] = set()
        """Those in sync but for entries that the hub refused."""

    def begin(self, stored: Iterable[ConversationId]) -> None:
        """Compare those stored here."""
        self._stored = frozenset(stored)
        self._add(self._stored)

    async def wait(
        self,
        replica: Replica,
        stored: Callable[[], Awaitable[Iterable[ConversationId]]],
        timeout_s: float,
    ) -> bool:
        """Wait until it is done; False after the timeout, or if the hub refused entries.

        What is deleted meanwhile is left out.
        `stored` reads the conversations held here. Raises ReplicaClosed, StoreError.
        """
        end = time.monotonic() + timeout_s
        # From before they are read, so that no deletion is missed in between.
        stop = replica.listen(self._note)
        try:
            self.begin(await stored())
            while await replica.wait_for(self._is_decided, end - time.monotonic()):
                if not self._may_be_gone:
                    return not self._refused
                gone, self._may_be_gone = self._may_be_gone, set()
                for one in gone:
                    if not await replica.store.has(one):  # else it only left memory
                        self._left.pop(one, None)
                        self._refused.discard(one)
        finally:
            stop()
        return False

    def is_done(self) -> bool:
        """Say whether there is a link and none is left. One is looked at until it is in sync."""
        if not self._hub.is_linked:
            return False
        if len(self._listed) != self._listed_count or not self._left:
            self._listed_count = len(self._listed)
            self._add(self._listed)
        while self._left:
            one, since = next(iter(self._left.items()))
            if not self._is_over(one, since):
                return False
            del self._left[one]
        return True

    def _note(self, event: Event) -> None:
        if isinstance(event, Forgotten):
            self._may_be_gone.add(event.conversation)

    def _is_decided(self) -> bool:
        return bool(self._may_be_gone) or self.is_done()

    def _add(self, conversations: Iterable[ConversationId]) -> None:
        for one in [one for one in conversations if one not in self._known]:
            self._known.add(one)
            self._left[one] = self._hub.compare(one)

    def _is_over(self, conversation: ConversationId, since: float) -> bool:
        hub = self._hub
        if conversation not in self._stored and hub.denial(conversation) is not None:
            return True  # it was listed, and nothing of it came
        if hub.ending(conversation) is not None:
            return True
        is_over = hub.is_in_sync(conversation, since)
        if is_over and hub.unsynced(conversation):
            self._refused.add(conversation)
        return is_over
