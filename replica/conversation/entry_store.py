"""A store of entries, as the drivers of a hub and of a replica see it (spec/04-link §7, §10).

Pure: it names what a driver asks for. replica/io/store.py is the store there
is, one SQLite file; another one keeps the same promises.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from replica.ids import ConversationId, EntryId, Position, PublicKey
from replica.log import Entry, Lost


@dataclass(frozen=True, slots=True)
class Stored:
    """How much of one conversation is held."""

    conversation: ConversationId
    entries: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Loaded:
    """What one conversation is restored from."""

    entries: list[Entry]
    """The sound ones, in (lamport, id) order."""
    lost: Lost
    apart: frozenset[EntryId] = frozenset()
    """Entries whose bodies are stored and were not asked for; any other body None is missing."""

    def __bool__(self) -> bool:
        """Say whether anything of the conversation is, or was, here."""
        return bool(self.entries or self.lost)


@dataclass(frozen=True, slots=True)
class Quarantined:
    """Bytes that failed their digest: a whole entry, or its body alone."""

    conversation: bytes
    id: bytes
    body_only: bool
    why: str


class EntryStore(Protocol):
    """Entries, acks and small values of one replica or hub. Every call raises StoreError."""

    async def append(self, entries: Sequence[Entry]) -> None:
        """Store admitted entries; return once they are durable. On an error none is stored."""

    async def load(self, conversation: ConversationId, *, bodies: bool = True) -> Loaded:
        """Return all that is sound of a conversation, and what was lost of it.

        Without `bodies` only control entries have theirs: enough to restore
        log and membership.
        """

    async def load_bodies(
        self, conversation: ConversationId, ids: Iterable[EntryId]
    ) -> dict[EntryId, bytes]:
        """Return bodies by entry id; those that are not held are left out."""

    async def has(self, conversation: ConversationId) -> bool:
        """Tell whether anything of the conversation is here, be it damaged."""

    async def conversations(self) -> list[Stored]:
        """List what is held, by conversation id."""

    async def delete(self, conversation: ConversationId) -> None:
        """Erase a conversation durably."""

    async def quarantined(self) -> list[Quarantined]:
        """List what failed its digest and was not deleted since."""

    def save_acks(
        self,
        conversation: ConversationId,
        peer: PublicKey,
        positions: Iterable[Position],
        now_ms: int,
    ) -> None:
        """Keep the newest position `peer` acknowledged on each lane; may be lost with the process.

        `now_ms` is Unix time.
        """

    async def load_acks(
        self, conversation: ConversationId, peer: PublicKey | None
    ) -> tuple[tuple[Position, ...], int | None]:
        """Return the positions `peer` acknowledged, and when it last did, in Unix milliseconds.

        None means all peers.
        """

    async def get_meta(self, key: str) -> bytes | None:
        """Return a small value kept under `key`."""

    async def put_meta(self, key: str, value: bytes) -> None:
        """Keep a small value; return once it is durable."""
