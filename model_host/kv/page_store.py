"""The interface between the host and a store of checkpoints (spec/08-checkpoint)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from model_host.kv.checkpoint import Manifest
from model_host.kv.memory import Bytes


@dataclass(slots=True)
class StoreCounters:
    """Counts of events in a store since start; the batcher counts their effects on requests."""

    corrupt: int = 0
    evicted_conversations: int = 0
    pieces_written: int = 0
    pieces_reused: int = 0
    bytes_written: int = 0
    """Bytes of payloads and manifests; those of writes that failed count as well."""


class PageSource(Protocol):
    """Positions of a context in memory, which a store reads."""

    @property
    def tokens(self) -> int:
        """Return the number of positions."""

    @property
    def bytes_per_token(self) -> int:
        """Return the bytes of one position over all layers."""

    def read(self, start: int, stop: int) -> Bytes:
        """Copy positions of one group, as the bytes of [L, 2, H_kv, stop - start, D].

        Raises CheckpointDropped if they are no longer in memory.
        """


class PageTarget(Protocol):
    """Positions in memory that a store writes, one piece after the other."""

    @property
    def tokens(self) -> int:
        """Return the position up to which bytes are written, at first a group's start."""

    @property
    def bytes_per_token(self) -> int:
        """Return the bytes of one position over all layers."""

    def write(self, stop: int, payload: Bytes) -> None:
        """Write the positions from `tokens` to `stop`, all of one group."""


@dataclass(frozen=True, slots=True)
class Stored:
    """The first `tokens` tokens of a context, as a checkpoint holds them."""

    conversation: bytes
    manifest: Manifest
    tokens: int


class PageStore(Protocol):
    """The checkpoints of all conversations within one byte budget.

    Derived state: any of them may be lost at any time. Several threads may use a store, so
    that a checkpoint is restored while another one is written.
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
        source: PageSource,
    ) -> Manifest | None:
        """Store the keys and values of `ids`, all of them in memory; durable on return.

        Returns None if `ids` is empty, or the namespace distrusted. Raises
        CheckpointTooLarge, CheckpointWriteFailed or CheckpointDropped; the new checkpoint is
        then removed, and older ones stay.
        """

    def find(
        self, conversation: bytes, namespace: bytes, ids: Sequence[int], common: int = 0
    ) -> Stored:
        """Return the longest stored prefix of `ids` that is longer than `common` tokens.

        At least one token is left to compute. Raises CheckpointMissing if there is none, and
        CheckpointCorrupt if one failed a check.
        """

    def load(self, stored: Stored, target: PageTarget) -> None:
        """Write what is stored, from the target's position on, piece by piece.

        Raises CheckpointCorrupt if a piece fails a check: the pieces before it are written.
        """

    def manifests(self, conversation: bytes) -> list[Manifest]:
        """Return a conversation's checkpoints, the newest first; remove corrupt ones."""

    def delete(self, conversation: bytes) -> None:
        """Remove all checkpoints of a conversation."""

    def distrust(self, namespace: bytes) -> None:
        """Neither find nor store anything of a namespace from now on, until the next start."""
