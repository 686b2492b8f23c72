"""The seam between the host and what keeps checkpoints beyond memory (spec/08-checkpoint)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from model_host.kv.cache import KVCache
from model_host.kv.checkpoint import Manifest


@dataclass(slots=True)
class StoreCounters:
    """What happened to stored bytes since start; the worker counts what it meant for a user."""

    corrupt: int = 0
    evicted_conversations: int = 0
    groups_written: int = 0
    groups_reused: int = 0


class PageStore(Protocol):
    """The checkpoints of all conversations within one byte budget.

    Derived state: it may lose any of them at any time. Not thread-safe.
    """

    counters: StoreCounters

    @property
    def nbytes(self) -> int:
        """Return the bytes all checkpoints take."""

    def save(
        self,
        conversation: bytes,
        namespace: bytes,
        seal: bytes,
        generation: bytes,
        ids: Sequence[int],
        cache: KVCache,
    ) -> Manifest | None:
        """Store the keys and values of `ids`, of which the cache holds all; durable on return.

        None if `ids` is empty. Raises CheckpointTooLarge or CheckpointWriteFailed; nothing
        of the new checkpoint remains then, and older ones stay.
        """

    def restore(
        self,
        conversation: bytes,
        namespace: bytes,
        ids: Sequence[int],
        cache: KVCache,
        common: int = 0,
    ) -> int:
        """Load the longest stored prefix of `ids` into a cache; return its tokens.

        The cache holds the first `common` tokens of `ids` already. At least one token is
        left to compute. Raises CheckpointMissing if nothing stored reaches further,
        CheckpointCorrupt if it fails a check: the cache then holds at most what it held.
        """

    def manifests(self, conversation: bytes) -> list[Manifest]:
        """Return a conversation's checkpoints, the newest first; broken ones are removed."""

    def delete(self, conversation: bytes) -> None:
        """Remove all checkpoints of a conversation."""
