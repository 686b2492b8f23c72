"""Entries: header, signature, body (spec/02-entry).

Pure: keys and random bytes are arguments. A header is kept as the bytes that were
signed; `Header` is their decoded form.
"""

import hashlib
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from replica.ids import (
    ENTRY_TAG,
    SALT_BYTES,
    SALT_TAG,
    SIGNATURE_TAG,
    ConversationId,
    Digest,
    EntryId,
    Lane,
    Position,
    PublicKey,
    Track,
    pae,
    tagged_sha256,
)
from replica.log.ed25519 import verify
from replica.refusals import BodyDigestMismatch

SIGNATURES_CACHED = 2_048
"""Signatures that are not verified twice: those of one frame."""


class Conflict(IntEnum):
    """The target of a request whose branch has grown since."""

    QUEUE = 0
    """Behind the answer at the end of the branch: no message leaves the context."""
    FORK = 1
    """On its basis alone, as a branch of its own."""


@dataclass(frozen=True, slots=True)
class Header:
    """A decoded header; ids and keys are 32 B, absent ids None."""

    conversation: ConversationId | None
    author: PublicKey
    epoch: int
    track: int
    seq: int
    prev: EntryId | None
    parents: tuple[EntryId, ...]
    basis: EntryId | None
    lamport: int
    kind: int
    critical: bool
    body_digest: Digest
    body_bytes: int
    create_time_ms: int
    conflict: int

    @property
    def lane(self) -> Lane:
        """The lane of this entry."""
        return Lane(self.author, self.epoch, self.track)

    def ancestors(self) -> tuple[EntryId, ...]:
        """Return the ids this header names directly: prev, parents and basis."""
        named = [i for i in (self.prev, *self.parents, self.basis) if i is not None]
        return tuple(dict.fromkeys(named))


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry as it is sent; `body` is None where it is withheld or missing."""

    header_bytes: bytes
    signature: bytes
    body: bytes | None
    id: EntryId
    header: Header

    @property
    def conversation(self) -> ConversationId:
        """The id of the conversation; for a genesis, its own id."""
        return self.header.conversation or ConversationId(self.id)

    @property
    def order_key(self) -> tuple[int, EntryId]:
        """The key of the canonical topological order."""
        return (self.header.lamport, self.id)

    @property
    def position(self) -> Position:
        """The entry's lane, seq and id."""
        return Position(self.header.lane, self.header.seq, self.id)

    @property
    def size_bytes(self) -> int:
        """Bytes held for this entry, without bookkeeping."""
        return len(self.header_bytes) + len(self.signature) + len(self.body or b"")


def send_order(entry: Entry) -> tuple[bool, int, EntryId]:
    """Return the sort key of send order: membership first, then (lamport, id).

    The order is topological but for revocations, which are pending until the entries
    of their cuts come. A grant comes before the entries of the granted key. So a
    stream in this order never fills the receiver's pending buffer.
    """
    return (entry.header.track not in (Track.ALL, Track.MEMBERSHIP), *entry.order_key)


def entry_id(header_bytes: bytes) -> EntryId:
    """Return the id of an entry, the hash of its signed header."""
    return EntryId(tagged_sha256(ENTRY_TAG, header_bytes))


def body_digest(body: bytes) -> Digest:
    """Return the digest a header states for `body`, salt included."""
    return Digest(hashlib.sha256(body).digest())


def salted(salt: bytes, content: bytes) -> bytes:
    """Return a body: 16 bytes of salt, then the serialised message."""
    assert len(salt) == SALT_BYTES, "a body starts with 16 bytes of salt"
    return salt + content


def retry_salt(author: PublicKey, retry_id: bytes) -> bytes:
    """Return the salt, 16 B, of a client without a store: a retry is then the same entry."""
    return tagged_sha256(SALT_TAG, author + retry_id)[:SALT_BYTES]


def public_key(key: Ed25519PrivateKey) -> PublicKey:
    """Return the public half of a key, 32 B."""
    return PublicKey(key.public_key().public_bytes_raw())


def sign(header_bytes: bytes, key: Ed25519PrivateKey) -> bytes:
    """Sign a header, 64 B; deterministic (RFC 8032)."""
    return key.sign(pae(SIGNATURE_TAG, header_bytes))


def verify_signature(entry: Entry) -> None:
    """Raise KeyInvalid or SignatureInvalid unless the author signed this header."""
    _verified(entry.header.author, entry.signature, entry.header_bytes)


@lru_cache(SIGNATURES_CACHED)
def _verified(key: PublicKey, signature: bytes, header_bytes: bytes) -> None:
    """Verify a header's signature; of one that was verified just before, nothing is computed.

    So a driver verifies a long message in steps, before it is judged as a whole.
    """
    verify(key, signature, pae(SIGNATURE_TAG, header_bytes))


def verify_body(entry: Entry) -> None:
    """Raise BodyDigestMismatch unless a present body has the stated size and digest."""
    if entry.body is None:
        return
    if len(entry.body) != entry.header.body_bytes:
        raise BodyDigestMismatch(
            f"the body has {len(entry.body)} bytes, the header says {entry.header.body_bytes}"
        )
    if body_digest(entry.body) != entry.header.body_digest:
        raise BodyDigestMismatch("the body's SHA-256 is not the one the header states")
