"""Links that are sent what is queued for them in later steps, by conversation (LINK-92).

Pure. An entry that many links read, or very many entries that few read, would hold up everybody
for as long as it takes to send them. So a step sends to some links, and the others follow.
"""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, TypeVar

from replica.ids import ConversationId

Waiting = TypeVar("Waiting")


class Postponed(Generic[Waiting]):
    """Those that wait, each once per conversation, the longest waiting first."""

    def __init__(self) -> None:
        """Start without any."""
        self._of: dict[ConversationId, OrderedDict[Waiting, None]] = {}

    def __bool__(self) -> bool:
        """Say whether anybody waits."""
        return bool(self._of)

    def __iter__(self) -> Iterator[ConversationId]:
        """Iterate over the conversations for which anybody waits."""
        return iter(tuple(self._of))

    def add(self, conversation: ConversationId, waiting: Waiting) -> None:
        """Let somebody wait."""
        self._of.setdefault(conversation, OrderedDict()).setdefault(waiting)

    def take(self, conversation: ConversationId) -> Waiting | None:
        """Take the next one of a conversation; None if nobody waits for it."""
        waiting = self._of.get(conversation)
        if waiting is None:
            return None
        first, _ = waiting.popitem(last=False)
        if not waiting:
            del self._of[conversation]
        return first
