"""The conversations in memory, by id, as links and cores use them.

Pure. A shelf need not hold every stored conversation. A driver loads a
conversation before it passes its core an input about it. Between two inputs a
shelf may evict a conversation that no link has open.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from replica.conversation.conversation import Conversation
from replica.ids import ConversationId, EntryId


class Shelf(Protocol):
    """The conversations in memory, as a core accesses them."""

    def get(self, conversation: ConversationId, /) -> Conversation | None:
        """Return a conversation; None if it is not in memory."""

    def find(self, conversation: ConversationId, /) -> Conversation | None:
        """Return a conversation as `get` does, also while a fold of it pauses.

        Then nobody may look at more than its pending entries.
        """

    def drop_pending(self, conversation: ConversationId, ids: Iterable[EntryId]) -> None:
        """Drop pending entries; do nothing if the conversation is not in memory."""

    def __iter__(self) -> Iterator[ConversationId]:
        """Iterate over the ids of the conversations in memory, which may be fewer than stored."""

    def add(self, held: Conversation) -> None:
        """Hold a conversation in memory, replacing an older one of the same id."""

    def remove(self, conversation: ConversationId) -> None:
        """Drop a conversation from memory; do nothing if it is not there."""


class MemoryShelf(Mapping[ConversationId, Conversation]):
    """A shelf without a bound, readable as a mapping."""

    def __init__(self, conversations: Iterable[Conversation] = ()) -> None:
        """Start with these conversations."""
        self._held = {held.id: held for held in conversations}

    def __getitem__(self, conversation: ConversationId) -> Conversation:
        """Return a conversation in memory. Raises KeyError."""
        return self._held[conversation]

    def __iter__(self) -> Iterator[ConversationId]:
        """Iterate over the ids of the conversations in memory."""
        return iter(self._held)

    def __len__(self) -> int:
        """Count the conversations in memory."""
        return len(self._held)

    def find(self, conversation: ConversationId) -> Conversation | None:
        """Return a conversation as `get` does: no fold pauses."""
        return self._held.get(conversation)

    def drop_pending(self, conversation: ConversationId, ids: Iterable[EntryId]) -> None:
        """Drop pending entries; do nothing if the conversation is not in memory."""
        held = self._held.get(conversation)
        if held is not None:
            held.log.admission.drop(ids)

    def add(self, held: Conversation) -> None:
        """Hold a conversation in memory, replacing an older one of the same id."""
        self._held[held.id] = held

    def remove(self, conversation: ConversationId) -> None:
        """Drop a conversation from memory; do nothing if it is not there."""
        self._held.pop(conversation, None)
