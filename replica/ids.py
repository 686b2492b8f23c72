"""Identifiers, and the rule for the pre-images of hashes and signatures (spec/00-conventions).

Every hash and signature covers a tagged, length-prefixed pre-image, so bytes
signed for one purpose never verify for another.
"""

import hashlib
from enum import IntEnum
from typing import NamedTuple, NewType

EntryId = NewType("EntryId", bytes)
"""SHA-256 of an entry's tagged header, 32 B."""
ConversationId = NewType("ConversationId", bytes)
"""The id of the conversation's genesis entry, 32 B."""
PublicKey = NewType("PublicKey", bytes)
"""An Ed25519 public key, 32 B."""
Digest = NewType("Digest", bytes)
"""A SHA-256 digest, 32 B."""

ID_BYTES = 32
KEY_BYTES = 32
SIGNATURE_BYTES = 64
SALT_BYTES = 16

ENTRY_TAG = b"antiphon/v1/entry"
SIGNATURE_TAG = b"antiphon/v1/signature"
DIGEST_TAG = b"antiphon/v1/digest"
CONTEXT_TAG = b"antiphon/v1/context"
SALT_TAG = b"antiphon/v1/salt"


class Track(IntEnum):
    """The three independent tracks of a conversation; ALL is for the genesis alone."""

    ALL = 0
    CONVERSATION = 1
    DOCUMENT = 2
    MEMBERSHIP = 3


class Lane(NamedTuple):
    """The entries one author wrote in one epoch on one track, numbered without gaps.

    A tuple: frames have thousands of them, and each is hashed and compared.
    """

    author: PublicKey
    epoch: int
    track: int


class Position(NamedTuple):
    """A position in a lane, and the id of the entry there."""

    lane: Lane
    seq: int
    id: EntryId


def pae(tag: bytes, data: bytes) -> bytes:
    """Return the tagged pre-image of `data`; both lengths are 8 bytes, little-endian."""
    return b"".join((len(tag).to_bytes(8, "little"), tag, len(data).to_bytes(8, "little"), data))


def tagged_sha256(tag: bytes, data: bytes) -> Digest:
    """Hash the tagged pre-image of `data`."""
    return Digest(hashlib.sha256(pae(tag, data)).digest())


def key_from_hex(text: str) -> PublicKey:
    """Parse a public key of 64 hex digits. Raises ValueError."""
    try:
        key = bytes.fromhex(text.strip())
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise ValueError(f"'{text}' is not a key: a key has 64 hex digits")
    return PublicKey(key)


def short(value: bytes) -> str:
    """Return the first 12 hex digits, the form for people."""
    return value.hex()[:12]
