"""The conversations of a hub: some in memory, the others in its store alone (spec/04-link §7).

Pure. For a stored conversation that is not in memory, the hub keeps its members'
keys. These suffice to list it, and to decide whether a message about it causes a load.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from replica import limits
from replica.conversation import Conversation, Stored, hosts_awaited
from replica.ids import ConversationId, EntryId, PublicKey
from syncd.shelves.folding import Folding


@dataclass(frozen=True, slots=True)
class Known:
    """The part of a stored conversation that stays in memory."""

    members: frozenset[PublicKey]
    creator: PublicKey | None = None
    awaiting: frozenset[PublicKey] = frozenset()
    """The keys for which a request waits, or may wait."""
    stored: Stored | None = None
    """The log that this is of; None if it lacks entries."""

    @classmethod
    def of(cls, held: Conversation, stored: Stored | None = None) -> "Known | None":
        """Return the record of a conversation; None while its members are unknown.

        Only control entries need bodies: without the others, `stored` says how large the log is.
        """
        if held.is_blocked:
            return None
        log, sums = held.log, held.log.checksums
        if stored is None:
            stored = Stored(held.id, len(log), log.size_bytes, sums.log, sums.membership)
        else:  # a store may be unable to tell it
            stored = replace(stored, membership=sums.membership)
        whole = None if held.damage else stored
        members = frozenset(log.membership.members())
        return cls(members, held.creator, frozenset(hosts_awaited(held)), whole)

    def for_log(self, stored: Stored) -> "Known | None":
        """Return the record for a log that was stored since; None if its members may be others.

        Only membership entries decide who is a member (spec/03-order). In a log that goes on a
        request may wait for each of them: for whom one does, only the whole log tells.
        """
        before = self.stored
        if before is None or stored.membership is None or before.membership != stored.membership:
            return None
        if before == stored:
            return self
        return replace(self, awaiting=self.members, stored=None)


class Records:
    """The records of the stored conversations that are not in memory."""

    def __init__(self) -> None:
        """Start with none."""
        self.all: dict[ConversationId, Known | None] = {}
        """By conversation; None if the members are unknown without a load."""
        self.of: dict[PublicKey, dict[ConversationId, None]] = {}
        """The same by member, so that a listing costs nothing for the conversations of others."""
        self.awaiting: dict[PublicKey, dict[ConversationId, None]] = {}
        """Those in which a request waits for a host, by host."""

    def is_unread(self, conversation: ConversationId) -> bool:
        """Say whether a conversation is stored, and its members are unknown until it is read."""
        return conversation in self.all and self.all[conversation] is None

    def is_outdated(self, conversation: ConversationId) -> bool:
        """Say whether a record is not of the whole log as it is stored, or there is none."""
        known = self.all.get(conversation)
        return conversation in self.all and (known is None or known.stored is None)

    def add(self, conversation: ConversationId, known: Known | None) -> None:
        """Add a record, in place of any other of the conversation."""
        self.remove(conversation)
        self.all[conversation] = known
        for key, found in self._named(known):
            found.setdefault(key, {})[conversation] = None

    def remove(self, conversation: ConversationId) -> None:
        """Remove a record, if there is one."""
        for key, found in self._named(self.all.pop(conversation, None)):
            del found[key][conversation]
            if not found[key]:
                del found[key]

    def _named(
        self, known: Known | None
    ) -> Iterator[tuple[PublicKey, dict[PublicKey, dict[ConversationId, None]]]]:
        """Yield each key that a record names, with the index to find it by."""
        if known is not None:
            yield from ((member, self.of) for member in known.members)
            yield from ((host, self.awaiting) for host in known.awaiting)


class HubShelf(Mapping[ConversationId, Conversation]):
    """A bounded shelf; as a mapping it yields the conversations in memory, oldest use first.

    Conversations that are open on a link, are being written or hold pending
    entries stay beyond the bound.
    """

    def __init__(self, in_memory_max: int, bytes_max: int = limits.LOGS_BYTES_MAX) -> None:
        """Start empty, with bounds on the conversations in memory: their number and bytes."""
        self._in_memory_max = in_memory_max
        self.bytes_max = bytes_max
        self.bytes_over = 0
        """Memory beyond the bound that the last eviction left."""
        self.loaded_bytes = 0
        """Memory of all conversations loaded so far, when they were."""
        self._held: dict[ConversationId, Conversation] = {}
        self.apart = Records()
        """The records of the stored conversations that are not in memory."""
        self.folding = Folding(self._held)
        """The conversations in memory whose folds pause; for all others they are not here."""
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
        if held.log.meter.pause is None:
            # By its id: what refers to itself is not freed at once.
            held.log.meter.pause = partial(self.folding.pause, held.id)

    def find(self, conversation: ConversationId) -> Conversation | None:
        """Return a conversation in memory, also while its fold pauses."""
        return self._held.get(conversation) or self.folding.held.get(conversation)

    def drop_pending(self, conversation: ConversationId, ids: Iterable[EntryId]) -> None:
        """Drop pending entries, where a fold pauses at its end."""
        held = self._held.get(conversation)
        if held is not None:
            held.log.admission.drop(ids)
        else:
            self.folding.drop_later(conversation, ids)

    def remove(self, conversation: ConversationId) -> None:
        """Drop a new conversation without entries; the record of a stored one stays."""
        self._held.pop(conversation, None)

    # --- stored conversations -------------------------------------------------------

    @property
    def known(self) -> int:
        """Count the conversations, in memory or not."""
        return len(self._held) + len(self.folding.held) + len(self.apart.all)

    def is_known(self, conversation: ConversationId) -> bool:
        """Say whether a conversation is here, in memory or not."""
        return self.find(conversation) is not None or conversation in self.apart.all

    @property
    def has_capacity(self) -> bool:
        """Say whether one more conversation may be held in memory."""
        return len(self._held) < self._in_memory_max

    def load(self, held: Conversation) -> None:
        """Hold a stored conversation in memory."""
        self.apart.remove(held.id)
        self.add(held)
        self.loaded_bytes += held.memory_bytes

    def index(self, held: Conversation) -> None:
        """Keep only the record of a stored conversation."""
        self._held.pop(held.id, None)
        self.apart.add(held.id, Known.of(held))

    def invalidate(self, conversation: ConversationId) -> None:
        """Drop a conversation and its record from memory; the next use loads it."""
        if not self.folding.lose(conversation):
            self._held.pop(conversation, None)
        self.apart.add(conversation, None)

    def forget(self, conversation: ConversationId) -> None:
        """Drop a conversation that is not stored any more."""
        self._held.pop(conversation, None)
        self.apart.remove(conversation)

    # --- queries of the hub ------------------------------------------------------------

    def needs_load(
        self, conversation: ConversationId, peer: PublicKey, *, brings_genesis: bool = False
    ) -> bool:
        """Say whether an answer to `peer` needs a load: it is a member, or may prove to be.

        So does one that waits for the end of a fold. A message of any other key causes no load,
        since the longer answer time would reveal to a stranger that the conversation exists.
        """
        if conversation in self.folding.held:
            return brings_genesis or self.folding.may_know(conversation, peer)
        if conversation not in self.apart.all:
            return False
        known = self.apart.all[conversation]
        return known is None or peer in known.members or brings_genesis

    def is_stranger(self, conversation: ConversationId, peer: PublicKey) -> bool:
        """Say whether memory shows that `peer` is no member; False if the members are unknown."""
        held, known = self._held.get(conversation), self.apart.all.get(conversation)
        if held is not None:
            return not held.is_member(peer)
        folding = self.folding.held.get(conversation)
        if folding is not None:
            is_blocked, before = folding.is_blocked, folding.log.roster.last
            return is_blocked or not before.is_member(peer)  # until the fold ends
        return known is not None and peer not in known.members

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

    def evict(self, is_needed: Callable[[ConversationId], bool]) -> tuple[ConversationId, ...]:
        """Evict the least recently used conversations beyond the bound; return their ids.

        Conversations that are needed or hold pending entries stay, since pending entries
        are stored nowhere.
        """
        self._has_grown = False
        left: list[ConversationId] = []
        size = sum(held.memory_bytes for held in self._held.values())
        for conversation, held in tuple(self._held.items()):
            if len(self._held) <= self._in_memory_max and size <= self.bytes_max:
                break
            if not is_needed(conversation) and not held.log.pending:
                self.index(held)
                left.append(conversation)
                size -= held.memory_bytes
        self.bytes_over = max(0, size - self.bytes_max)
        return tuple(left)
