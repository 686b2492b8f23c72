"""The operator's policy: quotas (spec/11-limits) and hosts vouched for (LINK-29).

The log decides who may read or write a conversation. A hub vouches for hosts,
and admission does not depend on it (DECISIONS D45).
"""

from dataclasses import dataclass
from math import inf

from replica import limits
from replica.ids import PublicKey


@dataclass(frozen=True, slots=True)
class Policy:
    """An operator's rules, which can refuse entries and links but never decide admission."""

    creators: frozenset[PublicKey] | None = None
    """Keys that may create (or re-seed) conversations; None for everyone."""
    entries_max: int = limits.ENTRIES_MAX
    """Entries one conversation may hold."""
    links_per_key_max: int = limits.LINKS_PER_KEY_MAX
    """Links one key may hold at a time."""
    conversations_in_memory_max: int = limits.CONVERSATIONS_IN_MEMORY_MAX
    """Conversations held in memory at a time, but for those in use; the others are loaded when
    a member asks for them."""
    logs_bytes_max: int = limits.LOGS_BYTES_MAX
    """Bytes of memory of the conversations held; beyond it even open ones are closed."""
    disk_creator_bytes_max: int = limits.DISK_CREATOR_BYTES_MAX
    """Bytes on disk of one creator's conversations, with their blobs."""
    disk_bytes_max: float = inf
    """Bytes on disk of all conversations, with their blobs."""
    conversations_per_creator_max: int = limits.CONVERSATIONS_PER_CREATOR_MAX
    """Conversations one key may bring to this hub, deleted ones included."""
    conversations_max: int = limits.CONVERSATIONS_MAX
    """Conversations of all keys, deleted ones included."""
    pending_bytes_max: int = limits.PENDING_BYTES_MAX
    """Bytes of pending entries of all links together."""
    host_keys: frozenset[PublicKey] = frozenset()
    """Keys of the operator's model hosts; HOSTS_MAX at most, so that a Welcome names all."""

    def may_create(self, key: PublicKey) -> bool:
        """Say whether `key` may create a conversation."""
        return self.creators is None or key in self.creators

    def vouches_for(self, key: PublicKey) -> bool:
        """Say whether `key` is one of the operator's model hosts."""
        return key in self.host_keys
