"""The interface between the host and a store of checkpoints (spec/08-checkpoint)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from model_host.kv.cache import KVCache
from model_host.kv.checkpoint import Manifest


@dataclass(slots=True)
class StoreCounters:
    """Counts of events in a store since start; the worker counts their effects on requests."""

    corrupt: int = 0
    evicted_conversations: int = 0
    groups_written: int = 0
    groups_reused: int = 0


class PageStore(Protocol):
    """The checkpoints of all conversations within one byte budget.

    Derived state: any of them may be lost at any time. Not thread-safe.
    """

    counters: StoreCounters

    @property
    def nbytes(self) -> int:
        """Return the bytes of all checkpoints."""

    def save(
        self,
        conversation: bytes,
        namespace: bytes,
        seal: bytes,
        generation: bytes,
        ids: Sequence[int],
        cache: KVCache,
    ) -> Manifest | None:
        """Store the keys and values of `ids`, all of them in the cache; durable on return.

        Returns None if `ids` is empty. Raises CheckpointTooLarge or CheckpointWriteFailed;
        the new checkpoint is then removed, and older ones stay.
        """

    def restore(
        self,
        conversation: bytes,
        namespace: bytes,
        ids: Sequence[int],
        cache: KVCache,
        common: int = 0,
    ) -> int:
        """Load the longest stored prefix of `ids` into a cache; return its length in tokens.

        The cache holds the first `common` tokens of `ids` already. At least one token is
        left to compute. Raises CheckpointMissing if no stored prefix is longer, and
        CheckpointCorrupt if one fails a check: the cache then has no more tokens than before.
        """

    def manifests(self, conversation: bytes) -> list[Manifest]:
        """Return a conversation's checkpoints, the newest first; remove corrupt ones."""

    def delete(self, conversation: bytes) -> None:
        """Remove all checkpoints of a conversation."""
