"""The records of stored conversations, as a hub keeps them from its stop to its next start.

Pure. A record says who may know of a conversation and which digest its log has. A start
that finds one reads no entry of that conversation before somebody uses it (DECISIONS D387).
A record counts only for a log of the same number of entries and bytes.
"""

import struct
from collections.abc import Iterable

from replica.conversation import Stored
from replica.ids import KEY_BYTES, ConversationId, Digest, PublicKey, tagged_sha256
from syncd.shelf import HubShelf, Known

NAME = "records of conversations"
"""The name under which a store keeps them."""
READ_ENTRIES_MAX = 5_000
"""Entries that a start reads in any case: up to so many, damage is found at once."""

_TAG = b"antiphon/v1/hub-records"
_DIGEST_BYTES = 32
_HEAD = struct.Struct("<32sQQ32s32sII")
"""Conversation, entries, bytes, digest, creator, number of members, of hosts awaited."""


def record_of(shelf: HubShelf, conversation: ConversationId) -> Known | None:
    """Return the record of a conversation; None if there is none, or if it lacks entries."""
    held = shelf.get(conversation)
    if held is None:
        return shelf.apart.all.get(conversation)
    return None if held.damage else Known.of(held)


def pack(records: Iterable[tuple[Stored, Known]]) -> bytes:
    """Serialise records, behind their digest. Those without a creator are left out."""
    body = b"".join(_packed(stored, known) for stored, known in records if known.creator)
    return tagged_sha256(_TAG, body) + body


def _packed(stored: Stored, known: Known) -> bytes:
    members, awaiting = sorted(known.members), sorted(known.awaiting)
    head = _HEAD.pack(
        stored.conversation,
        stored.entries,
        stored.size_bytes,
        known.digest,
        known.creator,
        len(members),
        len(awaiting),
    )
    return b"".join((head, *members, *awaiting))


def unpack(data: bytes) -> dict[Stored, Known]:
    """Return records that `pack` serialised; none if they are damaged: the logs are read then."""
    found, at = {}, _DIGEST_BYTES
    if tagged_sha256(_TAG, data[at:]) != data[:at]:
        return {}
    while at < len(data):
        head = _HEAD.unpack_from(data, at)
        conversation, entries, size_bytes, digest, creator, members, awaiting = head
        at += _HEAD.size
        keys = [
            PublicKey(data[start : start + KEY_BYTES])
            for start in range(at, at + KEY_BYTES * (members + awaiting), KEY_BYTES)
        ]
        at += KEY_BYTES * len(keys)
        stored = Stored(ConversationId(conversation), entries, size_bytes)
        found[stored] = Known(
            Digest(digest),
            frozenset(keys[:members]),
            PublicKey(creator),
            frozenset(keys[members:]),
        )
    return found
