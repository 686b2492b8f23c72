"""The conversations that each key brought to a hub, and those of all (LIM-11).

Pure. A deletion gives none back: the hub remembers the deleted ones too, with the key that
brought each (DECISIONS D556).
"""

from collections import Counter
from collections.abc import Set

from replica import limits
from replica.conversation import Conversation
from replica.ids import ConversationId, PublicKey
from replica.link import Entries, Message
from replica.refusals import QuotaExceeded


class Bringers:
    """The number of conversations per key that brought them, or that created stored ones."""

    def __init__(self, key_max: int, hub_max: int) -> None:
        """Allow so many conversations of one key, and of all."""
        self._key_max = key_max
        self._hub_max = hub_max
        self._brought: Counter[PublicKey] = Counter()
        self._by: dict[ConversationId, PublicKey | None] = {}
        self._begun: set[ConversationId] = set()
        """Those of which nothing is stored yet."""

    @property
    def keys(self) -> Set[PublicKey]:
        """The keys that brought conversations."""
        return self._brought.keys()

    def brought(self, peer: PublicKey) -> int:
        """Return the number of conversations of a key."""
        return self._brought[peer]

    def bringer(self, conversation: ConversationId) -> PublicKey | None:
        """Return the key that brought a conversation, if it is known."""
        return self._by.get(conversation)

    def count(self, peer: PublicKey | None, conversation: ConversationId) -> None:
        """Count one more stored conversation of a key; with None, of all alone."""
        self._by[conversation] = peer
        if peer is not None:
            self._brought[peer] += 1

    def begin(self, peer: PublicKey | None, conversation: ConversationId) -> None:
        """Count a conversation that may yet be refused, by a rule or by the disk."""
        self.count(peer, conversation)
        self._begun.add(conversation)

    def note_stored(self, conversation: ConversationId) -> None:
        """Note that the genesis of a conversation is durable."""
        self._begun.discard(conversation)

    def take_back(self, conversation: ConversationId) -> None:
        """Count a conversation no more that was refused; a stored one still counts."""
        if conversation not in self._begun:
            return
        self._begun.remove(conversation)
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
        same for any conversation that the key is no member of, but for one that is blocked:
        anyone may bring what it lacks (LINK-33). The last eighth is for keys with few.
        """
        if peer is None or not isinstance(message, Entries) or not message.brings_genesis:
            return None
        if held is not None and (held.is_member(peer) or held.is_blocked):
            return None
        own, others = self._brought[peer], len(self._by)
        if own >= self._key_max:
            return QuotaExceeded("this key brought as many conversations as it may")
        reserve = self._hub_max // limits.RESERVE_SHARE if own < limits.FEW_CONVERSATIONS else 0
        unshared = self._hub_max - self._hub_max // limits.RESERVE_SHARE
        if others >= unshared + reserve:
            return QuotaExceeded("this hub has as many conversations as it may")
        return None
