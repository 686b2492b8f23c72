"""The records of stored conversations, as a hub keeps them for its next start.

Pure. A record says who may know of a conversation and which digest its log has. A start
that finds one reads no entry of that conversation before somebody uses it (DECISIONS D387).
A record counts only for the log that it was made of: one of as many entries and bytes, with
the same sum of checksums. So one that is out of date does no harm (DECISIONS D545).
"""

import struct
from collections.abc import Iterable

from replica.conversation import Stored
from replica.ids import KEY_BYTES, ConversationId, Digest, PublicKey, tagged_sha256
from syncd.shelf import HubShelf, Known

READ_ENTRIES_MAX = 5_000
"""Entries that a start reads in any case: up to so many, damage is found at once."""

_TAG = b"antiphon/v1/hub-record/2"
"""Another one wherever the same log would have another record: it may be older than this hub."""
_DIGEST_BYTES = 32
_HEAD = struct.Struct("<32sQQQ32s32sII")
"""Conversation, entries, bytes, checksum, digest, creator, number of members, of hosts awaited."""


def record_of(shelf: HubShelf, conversation: ConversationId) -> Known | None:
    """Return the record of a conversation; None if there is none, or if it lacks entries."""
    held = shelf.get(conversation)
    known = Known.of(held) if held is not None else shelf.apart.all.get(conversation)
    return known if known is not None and known.stored is not None and known.creator else None


def pack(known: Known) -> bytes:
    """Serialise a record of `record_of`, behind its digest."""
    stored, creator = known.stored, known.creator
    assert stored is not None and creator is not None, "others are not kept"
    members, awaiting = sorted(known.members), sorted(known.awaiting)
    head = _HEAD.pack(
        stored.conversation,
        stored.entries,
        stored.size_bytes,
        stored.checksum,
        known.digest,
        creator,
        len(members),
        len(awaiting),
    )
    body = b"".join((head, *members, *awaiting))
    return tagged_sha256(_TAG, body) + body


def unpack(data: bytes) -> Known | None:
    """Return a record that `pack` serialised; None if it is damaged: the log is read then."""
    if tagged_sha256(_TAG, data[_DIGEST_BYTES:]) != data[:_DIGEST_BYTES]:
        return None
    head = _HEAD.unpack_from(data, _DIGEST_BYTES)
    conversation, entries, size_bytes, checksum, digest, creator, members, _ = head
    starts = range(_DIGEST_BYTES + _HEAD.size, len(data), KEY_BYTES)
    keys = [PublicKey(data[start : start + KEY_BYTES]) for start in starts]
    return Known(
        Digest(digest),
        frozenset(keys[:members]),
        PublicKey(creator),
        frozenset(keys[members:]),
        Stored(ConversationId(conversation), entries, size_bytes, checksum),
    )


class Unrecorded:
    """The conversations whose stored record is missing or out of date."""

    def __init__(self) -> None:
        """Start with none."""
        self._since: dict[ConversationId, float] = {}
        """The times of their last changes, the earliest first."""
        self.entries = 0
        """Entries of all conversations, those deleted since the start included."""

    def note(self, conversations: Iterable[ConversationId], now: float) -> None:
        """Note that conversations changed now."""
        for conversation in conversations:
            self._since.pop(conversation, None)
            self._since[conversation] = now

    def take(self, until: float, count: int) -> list[ConversationId]:
        """Return, and forget, at most `count` conversations unchanged since `until`.

        None while a start would read all entries anyway.
        """
        taken: list[ConversationId] = []
        if self.entries > READ_ENTRIES_MAX:
            for conversation, changed in self._since.items():
                if changed > until or len(taken) == count:
                    break
                taken.append(conversation)
        for conversation in taken:
            del self._since[conversation]
        return taken
