"""Whether all conversations of a replica have been in sync with its hub since a call."""

from collections.abc import Iterable, Set

from replica.ids import ConversationId
from replica.io import HubStatus


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
        self._add(self._stored)

    def is_done(self) -> bool:
        """Say whether there is a link and none is left. One is looked at until it is in sync."""
        if not self._hub.is_linked:
            return False
        if len(self._listed) != self._listed_count or not self._left:
            self._listed_count = len(self._listed)
            self._add(self._listed)
        while self._left:
            one, since = next(iter(self._left.items()))
            if not self._is_decided(one, since):
                return False
            del self._left[one]
        return True

    def _add(self, conversations: Iterable[ConversationId]) -> None:
        for one in [one for one in conversations if one not in self._known]:
            self._known.add(one)
            self._left[one] = self._hub.compare(one)

    def _is_decided(self, conversation: ConversationId, since: float) -> bool:
        hub = self._hub
        if conversation not in self._stored and hub.denial(conversation) is not None:
            return True  # it was listed, and nothing of it came
        return hub.is_in_sync(conversation, since) or hub.ending(conversation) is not None
