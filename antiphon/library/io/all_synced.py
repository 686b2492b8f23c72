"""Whether all conversations of a replica have been in sync with its hub since a call."""

import time
from collections.abc import Iterable, Set

from replica.ids import ConversationId
from replica.io import HubStatus, Replica
from replica.link import Event, Forgotten


class AllSynced:
    """The conversations that are still to be in sync, each as of when it was known."""

    def __init__(
        self, hub: HubStatus, stored: Iterable[ConversationId], listed: Set[ConversationId]
    ) -> None:
        """Compare those stored here, and those that the hub lists, now and from now on."""
        self._hub = hub
        self._stored = frozenset(stored)
        self._listed = listed
        self._listed_count = 0
        self._known: set[ConversationId] = set()
        self._left: dict[ConversationId, float] = {}
        self._may_be_gone: set[ConversationId] = set()
        """Those of them to look for in the store."""
        self._add(self._stored)

    async def wait(self, replica: Replica, timeout_s: float) -> bool:
        """Wait until it is done; False after the timeout. What is deleted meanwhile is left out.

        Raises ReplicaClosed, StoreError.
        """
        end = time.monotonic() + timeout_s
        stop = replica.listen(self._note)
        try:
            while await replica.wait_for(self._is_decided, end - time.monotonic()):
                if not self._may_be_gone:
                    return True
                gone, self._may_be_gone = self._may_be_gone, set()
                for one in gone:
                    if not await replica.store.has(one):  # else it only left memory
                        self._left.pop(one, None)
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
        if isinstance(event, Forgotten) and event.conversation in self._left:
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
        return hub.is_in_sync(conversation, since) or hub.ending(conversation) is not None
