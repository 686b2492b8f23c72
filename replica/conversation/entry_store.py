"""The interface of an entry store, as drivers of hubs and replicas use it (04-link §7, §10).

Pure. replica/io/store/store.py implements it with one SQLite file. Any other
implementation gives the same guarantees.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from replica.ids import ConversationId, EntryId, Position, PublicKey
from replica.log import Entry, Lost


@dataclass(frozen=True, slots=True)
class Stored:
    """The size of one stored conversation."""

    conversation: ConversationId
    entries: int
    size_bytes: int
    checksum: int
    """Sum of the CRC-32s of the signatures: of two logs of one size, it tells which is stored."""
    membership: tuple[int, int] | None
    """The number of the membership entries and the same sum of them; None if that is unknown,
    since a row of them may be damaged or missing."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The stored entries of one conversation, as read."""

    entries: list[Entry]
    """Sound entries, in (lamport, id) order."""
    lost: Lost
    apart: frozenset[EntryId] = frozenset()
    """Entries whose bodies are stored and were not requested; other bodies of None are missing."""

    def __bool__(self) -> bool:
        """Say whether anything of the conversation is or was stored."""
        return bool(self.entries or self.lost)


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A row that failed its digest: a whole entry, or its body alone."""

    conversation: bytes
    id: bytes
    body_only: bool
    why: str


class EntryStore(Protocol):
    """Entries, acks and small values of one replica or hub. Every call raises StoreError."""

    async def append(self, entries: Sequence[Entry], *, at_once: bool = False) -> None:
        """Store admitted entries; return once they are durable. On an error, store none.

        Concurrent callers share one sync, unless it is to begin `at_once`.
        """

    async def load(self, conversation: ConversationId, *, bodies: bool = True) -> Loaded:
        """Return the sound entries of a conversation and the ids of the lost ones.

        Without `bodies`, only control entries have theirs, which is enough to
        restore log and membership.
        """

    async def load_bodies(
        self, conversation: ConversationId, ids: Iterable[EntryId]
    ) -> dict[EntryId, bytes]:
        """Return bodies by entry id; missing ones are left out."""

    async def has(self, conversation: ConversationId) -> bool:
        """Say whether anything of the conversation is stored, including damaged rows."""

    async def conversations(self) -> list[Stored]:
        """List the stored conversations by id."""

    async def delete(self, conversation: ConversationId) -> None:
        """Erase a conversation durably."""

    @property
    def lost_count(self) -> int:
        """Number of entries at the end of the store that are gone since the last repair."""

    async def quarantined(self) -> list[Quarantined]:
        """List the rows that failed their digests and were not deleted since."""

    def save_acks(
        self,
        conversation: ConversationId,
        peer: PublicKey,
        positions: Iterable[Position],
        now_ms: int,
    ) -> None:
        """Save the newest position `peer` acknowledged on each lane; a crash may lose it.

        `now_ms` is Unix time.
        """

    async def load_acks(
        self, conversation: ConversationId, peer: PublicKey | None
    ) -> tuple[tuple[Position, ...], int | None]:
        """Return the positions `peer` acknowledged, and the Unix time of the last ack in ms.

        None means all peers.
        """

    async def get_meta(self, key: str, *, is_derived: bool = False) -> bytes | None:
        """Return the small value stored under `key`; None if there is none.

        Of a value that `is_derived`, and is learned again, a damaged one is none, and no other
        row is read for it.
        """

    async def put_meta(self, key: str, value: bytes) -> None:
        """Store a small value under `key`; return once it is durable."""
