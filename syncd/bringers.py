"""The conversations that each key brought to a hub (LIM-11).

Pure. A deletion gives none back: the hub remembers the deleted ones too.
"""

from collections import Counter
from collections.abc import Set

from replica.conversation import Conversation
from replica.ids import ConversationId, PublicKey
from replica.link import Entries, Message
from replica.refusals import QuotaExceeded


class Bringers:
    """The number of conversations per key that brought them, or that created stored ones."""

    def __init__(self, most: int) -> None:
        """Allow so many conversations of one key."""
        self._most = most
        self._brought: Counter[PublicKey] = Counter()
        self._by: dict[ConversationId, PublicKey] = {}

    @property
    def keys(self) -> Set[PublicKey]:
        """The keys that brought conversations."""
        return self._brought.keys()

    def brought(self, peer: PublicKey) -> int:
        """Return the number of conversations of a key."""
        return self._brought[peer]

    def count(self, peer: PublicKey | None, conversation: ConversationId) -> None:
        """Count one more conversation of a key."""
        if peer is not None:
            self._brought[peer] += 1
            self._by[conversation] = peer

    def take_back(self, conversation: ConversationId) -> None:
        """Count a conversation no more that was refused, by a rule or by the disk."""
        peer = self._by.pop(conversation, None)
        if peer is not None:
            self._brought[peer] -= 1
            if not self._brought[peer]:
                del self._brought[peer]

    def refusal(
        self, peer: PublicKey | None, message: Message, held: Conversation | None
    ) -> QuotaExceeded | None:
        """Return the refusal of a message that may begin one conversation too many.

        `held` is the one that the message names, if it is in memory. The refusal is the
        same for any conversation that the key is no member of.
        """
        if peer is None or not isinstance(message, Entries) or not message.brings_genesis:
            return None
        if self._brought[peer] < self._most or (held is not None and held.is_member(peer)):
            return None
        return QuotaExceeded("this key brought as many conversations as it may")
