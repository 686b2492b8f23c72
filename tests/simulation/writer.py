"""The author of a replica: writes the next entry of a lane, recorded when signed."""

from functools import lru_cache
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from replica.conversation.author import Author
from replica.conversation.conversation import Conversation
from replica.conversation.store_epochs import CHANCE_BYTES
from replica.ids import ConversationId, EntryId, PublicKey, Track
from replica.log.body import Body, DocumentUpdate, Genesis, Member, Revocation
from replica.log.entry import Conflict, Entry, public_key
from replica.log.kinds import Kind

if TYPE_CHECKING:
    from tests.simulation.replica_node import ReplicaNode

EPOCH_MS = 1_700_000_000_000


@lru_cache(maxsize=64)
def key_of(name: str) -> tuple[Ed25519PrivateKey, PublicKey]:
    """Return the key of a name, the same in every seed."""
    key = Ed25519PrivateKey.from_private_bytes(name.encode().ljust(32, b"*"))
    return key, public_key(key)


class Unchecked(Author):
    """An author that checks no roles; entries it may not write are void for all."""

    def may_write(self, held: Conversation, body: Body) -> bool:
        return True

    def may_name(self, held: Conversation, named: tuple[EntryId, ...]) -> bool:
        """Let a reader follow its own void entries."""
        is_reader = not held.log.membership.covers_author(self.public)
        return is_reader or super().may_name(held, named)


class Writer:
    """Writes in the name of one replica, through its core."""

    def __init__(self, replica: "ReplicaNode") -> None:
        self._replica = replica

    @property
    def time_ms(self) -> int:
        return EPOCH_MS + int(self._replica.clock.now * 1000)

    def create(self, owners: tuple[PublicKey, ...]) -> ConversationId:
        author = Unchecked(self._replica.key, self._new_epoch())
        body = Genesis(owners)
        entry = author.genesis(body, salt=self._salt(), time_ms=self.time_ms)
        conversation = ConversationId(entry.id)
        self._replica.core.epochs.begin(conversation, author.epoch)
        self._append(entry, body)
        self._replica.join(conversation)
        return conversation

    def write(
        self,
        conversation: ConversationId,
        body: Body,
        parents: tuple[EntryId, ...],
        *,
        basis: EntryId | None = None,
        conflict: Conflict = Conflict.QUEUE,
    ) -> Entry:
        """Write the next entry of our own, durable before it is sent."""
        held = self._replica.shelf[conversation]
        entry = self._author(held).write(
            held,
            body,
            parents=parents,
            basis=basis,
            conflict=conflict,
            salt=self._salt(),
            time_ms=self.time_ms,
        )
        self._append(entry, body)
        return entry

    def leave_as_reader(self, held: Conversation) -> None:
        """Resign in the one form that counts for readers (ORD-3)."""
        self._replica.core.epochs.begin(held.id, self._new_epoch())
        body = Member(Revocation(self._replica.public))
        self.write(held.id, body, (EntryId(held.id),))

    def set_title(self, held: Conversation, title: str) -> None:
        """Set the title in the document, on top of all held updates."""
        edit = held.document.edit(self._author(held).lane(Track.DOCUMENT))
        edit.set_meta("title", title)
        self.write(held.id, DocumentUpdate(edit.update()), held.document.heads)

    def _append(self, entry: Entry, body: Body) -> None:
        replica = self._replica
        replica.oracle.history.authored(replica.name, entry, body)
        replica.trace(f"writes {Kind(entry.header.kind).name} {entry.id.hex()[:6]}")
        replica.do(replica.core.append(entry, replica.clock.now))

    def _author(self, held: Conversation) -> Unchecked:
        epoch = self._replica.core.epochs.epoch(held, self._new_epoch())
        return Unchecked(self._replica.key, epoch)

    def _salt(self) -> bytes:
        return self._replica.random.randbytes(16)

    def _new_epoch(self) -> int:
        return self._replica.epochs.new(self._replica.random.randbytes(CHANCE_BYTES))
