"""The conversations of a hub: some in memory, the others in its store alone (spec/04-link §7).

Pure. Of a stored conversation that is not in memory the hub keeps its digest
and its members' keys: enough to list it, and to tell from memory whether a
message about it is worth a load.
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
        """Return the record of a conversation; None while nobody can tell its members."""
        if held.is_blocked:
            return None
        keys = held.log.membership.roles
        return cls(held.log.digest, frozenset(key for key in keys if held.is_member(key)))


class HubShelf(Mapping[ConversationId, Conversation]):
    """A bounded shelf; as a mapping it shows what is in memory, the least recently used first.

    The bound gives way to conversations that are open on a link, are being
    written, or hold pending entries.
    """

    def __init__(self, in_memory_max: int) -> None:
        """Start empty."""
        self._in_memory_max = in_memory_max
        self._held: dict[ConversationId, Conversation] = {}
        self._apart: dict[ConversationId, Known | None] = {}
        """Stored and not in memory; None where the members can't be told without a load."""
        self._has_grown = False

    def __getitem__(self, conversation: ConversationId) -> Conversation:
        """Return a conversation in memory. Raises KeyError."""
        return self._held[conversation]

    def __iter__(self) -> Iterator[ConversationId]:
        """Iterate over the ids of what is in memory."""
        return iter(self._held)

    def __len__(self) -> int:
        """Count the conversations in memory."""
        return len(self._held)

    # --- what links do ----------------------------------------------------------

    def add(self, held: Conversation) -> None:
        """Hold a new conversation in memory."""
        self._held[held.id] = held
        self._has_grown = True

    def remove(self, conversation: ConversationId) -> None:
        """Drop a new conversation that came to nothing; what is known of a stored one stays."""
        self._held.pop(conversation, None)

    # --- what a store holds -------------------------------------------------------

    @property
    def has_capacity(self) -> bool:
        """Say whether one more conversation may be held in memory."""
        return len(self._held) < self._in_memory_max

    def load(self, held: Conversation) -> None:
        """Hold a stored conversation in memory."""
        self._apart.pop(held.id, None)
        self.add(held)

    def index(self, held: Conversation) -> None:
        """Remember of a stored conversation only what is kept without holding it."""
        self._held.pop(held.id, None)
        self._apart[held.id] = Known.of(held)

    def invalidate(self, conversation: ConversationId) -> None:
        """Drop what memory has of a conversation: its store says what is true."""
        self._held.pop(conversation, None)
        self._apart[conversation] = None

    def forget(self, conversation: ConversationId) -> None:
        """Drop a conversation that is not stored, or is no longer."""
        self._held.pop(conversation, None)
        self._apart.pop(conversation, None)

    # --- what a hub asks ------------------------------------------------------------

    def needs_load(
        self, conversation: ConversationId, peer: PublicKey, *, brings_genesis: bool = False
    ) -> bool:
        """Say whether `peer` is answered from the store: it is a member, or may prove to be.

        Nobody else's message loads anything: a load takes longer, and would
        tell a stranger that the conversation exists.
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

    # --- letting go -------------------------------------------------------------------

    def touch(self, conversation: ConversationId) -> None:
        """Take a conversation as used now; harmless where it is not in memory."""
        held = self._held.pop(conversation, None)
        if held is not None:
            self._held[conversation] = held

    @property
    def is_over_bound(self) -> bool:
        """Say whether too much is in memory, some of it since `evict` last looked."""
        return self._has_grown and len(self._held) > self._in_memory_max

    def evict(self, needed: AbstractSet[ConversationId]) -> tuple[ConversationId, ...]:
        """Index the least recently used conversations while there are too many; return them.

        Stays what is `needed`, and what holds pending entries: those are stored nowhere.
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
