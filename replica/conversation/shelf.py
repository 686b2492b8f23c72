"""The conversations in memory, by id: what links and cores ask for them.

Pure. A shelf need not hold everything that is stored. A driver loads a
conversation before it hands its core an input about it, and a shelf may let go
of one between two inputs, as long as no link has it open.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from replica.conversation.conversation import Conversation
from replica.ids import ConversationId


class Shelf(Protocol):
    """What a core needs of the conversations in memory."""

    def get(self, conversation: ConversationId, /) -> Conversation | None:
        """Return a conversation; None where it is not in memory."""

    def __iter__(self) -> Iterator[ConversationId]:
        """Iterate over the ids of what is in memory, which need not be all that is stored."""

    def add(self, held: Conversation) -> None:
        """Hold a conversation in memory, in place of an older one of that id."""

    def remove(self, conversation: ConversationId) -> None:
        """Drop a conversation from memory; harmless where it is not there."""


class MemoryShelf(Mapping[ConversationId, Conversation]):
    """A shelf without a bound; as a mapping it shows what is in memory."""

    def __init__(self, conversations: Iterable[Conversation] = ()) -> None:
        """Start with these conversations."""
        self._held = {held.id: held for held in conversations}

    def __getitem__(self, conversation: ConversationId) -> Conversation:
        """Return a conversation in memory. Raises KeyError."""
        return self._held[conversation]

    def __iter__(self) -> Iterator[ConversationId]:
        """Iterate over the ids of what is in memory."""
        return iter(self._held)

    def __len__(self) -> int:
        """Count the conversations in memory."""
        return len(self._held)

    def add(self, held: Conversation) -> None:
        """Hold a conversation in memory, in place of an older one of that id."""
        self._held[held.id] = held

    def remove(self, conversation: ConversationId) -> None:
        """Drop a conversation from memory; harmless where it is not there."""
        self._held.pop(conversation, None)
