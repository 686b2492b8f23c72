"""What an operator sets beyond the protocol: quotas (spec/11-limits), and vouching (LINK-29).

Who may read or write a conversation is not decided here: the log says it.
"""

from dataclasses import dataclass

from replica import limits
from replica.ids import PublicKey


@dataclass(frozen=True, slots=True)
class Policy:
    """An operator's own rules: they refuse what comes in, and never decide admission."""

    creators: frozenset[PublicKey] | None = None
    """Keys that may create (or re-seed) conversations; None for everyone."""
    entries_max: int = 1_000_000
    """Entries one conversation may hold."""
    links_per_key_max: int = 64
    """Links one key may hold at a time."""
    conversations_in_memory_max: int = 1_000
    """Conversations held in memory at a time, but for those in use; the others are loaded when
    a member asks for them."""
    pending_bytes_max: int = limits.PENDING_BYTES_MAX
    """Bytes all links together may keep waiting for missing entries."""
    host_keys: frozenset[PublicKey] = frozenset()
    """Keys of the operator's own model hosts, HOSTS_MAX at most, so that a Welcome has all."""

    def may_create(self, key: PublicKey) -> bool:
        """Say whether `key` may bring a conversation that is not here."""
        return self.creators is None or key in self.creators

    def vouches_for(self, key: PublicKey) -> bool:
        """Say whether `key` is a model host of the operator's own."""
        return key in self.host_keys
