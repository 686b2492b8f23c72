"""The conversations of a hub: some in memory, the others in its store alone (spec/04-link §7).

Pure. For a stored conversation that is not in memory, the hub keeps its digest
and its members' keys. These suffice to list it, and to decide whether a message
about it causes a load.
"""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from replica.conversation import Conversation
from replica.ids import ConversationId, Digest, PublicKey


@dataclass(frozen=True, slots=True)
class Known:
    """The part of a stored conversation that stays in memory."""

    digest: Digest
    members: frozenset[PublicKey]

    @classmethod
    def of(cls, held: Conversation) -> "Known | None":
        """Return the record of a conversation; None while its members are unknown."""
        if held.is_blocked:
            return None
        keys = held.log.membership.roles
        return cls(held.log.digest, frozenset(key for key in keys if held.is_member(key)))


class HubShelf(Mapping[ConversationId, Conversation]):
    """A bounded shelf; as a mapping it yields the conversations in memory, oldest use first.

    Conversations that are open on a link, are being written or hold pending
    entries stay beyond the bound.
    """

    def __init__(self, in_memory_max: int) -> None:
        """Start empty, with a bound on the number of conversations in memory."""
        self._in_memory_max = in_memory_max
        self._held: dict[ConversationId, Conversation] = {}
        self._apart: dict[ConversationId, Known | None] = {}
        """Stored and not in memory; None if the members are unknown without a load."""
        self._has_grown = False

    def __getitem__(self, conversation: ConversationId) -> Conversation:
        """Return a conversation in memory. Raises KeyError."""
        return self._held[conversation]

    def __iter__(self) -> Iterator[ConversationId]:
        """Iterate over the ids of the conversations in memory."""
        return iter(self._held)

    def __len__(self) -> int:
        """Count the conversations in memory."""
        return len(self._held)

    # --- used by links ----------------------------------------------------------

    def add(self, held: Conversation) -> None:
        """Hold a new conversation in memory."""
        self._held[held.id] = held
        self._has_grown = True

    def remove(self, conversation: ConversationId) -> None:
        """Drop a new conversation without entries; the record of a stored one stays."""
        self._held.pop(conversation, None)

    # --- stored conversations -------------------------------------------------------

    @property
    def has_capacity(self) -> bool:
        """Say whether one more conversation may be held in memory."""
        return len(self._held) < self._in_memory_max

    def load(self, held: Conversation) -> None:
        """Hold a stored conversation in memory."""
        self._apart.pop(held.id, None)
        self.add(held)

    def index(self, held: Conversation) -> None:
        """Keep only the record of a stored conversation."""
        self._held.pop(held.id, None)
        self._apart[held.id] = Known.of(held)

    def invalidate(self, conversation: ConversationId) -> None:
        """Drop a conversation and its record from memory; the next use loads it."""
        self._held.pop(conversation, None)
        self._apart[conversation] = None

    def forget(self, conversation: ConversationId) -> None:
        """Drop a conversation that is not stored any more."""
        self._held.pop(conversation, None)
        self._apart.pop(conversation, None)

    # --- queries of the hub ------------------------------------------------------------

    def needs_load(
        self, conversation: ConversationId, peer: PublicKey, *, brings_genesis: bool = False
    ) -> bool:
        """Say whether an answer to `peer` needs a load: it is a member, or may prove to be.

        A message of any other key causes no load, since the longer answer time
        would reveal to a stranger that the conversation exists.
        """
        if conversation not in self._apart:
            return False
        known = self._apart[conversation]
        return known is None or peer in known.members or brings_genesis

    def listing(self, peer: PublicKey) -> list[tuple[ConversationId, Digest]]:
        """Return the conversations of a member with their digests, by id."""
        held = [(c, one.log.digest) for c, one in self._held.items() if one.is_member(peer)]
        apart = [
            (c, known.digest)
            for c, known in self._apart.items()
            if known is not None and peer in known.members
        ]
        return sorted(held + apart)

    # --- eviction -------------------------------------------------------------------

    def touch(self, conversation: ConversationId) -> None:
        """Mark a conversation as used now; do nothing if it is not in memory."""
        held = self._held.pop(conversation, None)
        if held is not None:
            self._held[conversation] = held

    @property
    def is_over_bound(self) -> bool:
        """Say whether the bound is exceeded and something was added since the last eviction."""
        return self._has_grown and len(self._held) > self._in_memory_max

    def evict(self, needed: AbstractSet[ConversationId]) -> tuple[ConversationId, ...]:
        """Evict the least recently used conversations beyond the bound; return their ids.

        Conversations that are `needed` or hold pending entries stay, since pending
        entries are stored nowhere.
        """
        self._has_grown = False
        left: list[ConversationId] = []
        for conversation, held in tuple(self._held.items()):
            if len(self._held) <= self._in_memory_max:
                break
            if conversation not in needed and not held.log.pending:
                self.index(held)
                left.append(conversation)
        return tuple(left)
