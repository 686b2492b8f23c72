"""The records of stored conversations, as a hub keeps them for its next start.

Pure. A record says who may know of a conversation. A start that finds one reads no entry of
that conversation before somebody uses it (DECISIONS D387). A record counts only for the log
that it was made of, or for one with the same membership entries: of each log it has the sum
of the checksums. So one that is out of date does no harm (DECISIONS D545, D555).
"""

import struct
from collections.abc import Iterable, Mapping
from itertools import chain, islice, takewhile
from math import inf

from replica.conversation import Stored
from replica.ids import KEY_BYTES, ConversationId, PublicKey, tagged_sha256
from syncd.shelves.shelf import HubShelf, Known

READ_ENTRIES_MAX = 5_000
"""Entries that a start reads in any case: up to so many, damage is found at once."""

_TAG = b"antiphon/v1/hub-record/3"
"""Another one wherever the same log would have another record: it may be older than this hub."""
_DIGEST_BYTES = 32
_HEAD = struct.Struct("<32sQQQQQ32sII")
"""Conversation, entries, bytes, checksum, the membership's number and checksum, creator, numbers
of members, of those awaited."""


def record_of(shelf: HubShelf, conversation: ConversationId) -> Known | None:
    """Return the record of a conversation; None if there is none, or if it lacks entries."""
    held = shelf.get(conversation)
    known = Known.of(held) if held is not None else shelf.apart.all.get(conversation)
    return known if known is not None and known.stored is not None and known.creator else None


def pack(known: Known) -> bytes:
    """Serialise a record of `record_of`, behind its digest."""
    stored, creator = known.stored, known.creator
    assert stored is not None and creator is not None, "others are not kept"
    assert stored.membership is not None, "a log knows its membership entries"
    lists = [sorted(keys) for keys in (known.members, known.awaiting)]
    head = _HEAD.pack(
        stored.conversation,
        stored.entries,
        stored.size_bytes,
        stored.checksum,
        *stored.membership,
        creator,
        *map(len, lists),
    )
    body = b"".join((head, *chain.from_iterable(lists)))
    return tagged_sha256(_TAG, body) + body


def unpack(data: bytes) -> Known | None:
    """Return a record that `pack` serialised; None if it is damaged: the log is read then."""
    if tagged_sha256(_TAG, data[_DIGEST_BYTES:]) != data[:_DIGEST_BYTES]:
        return None
    head = _HEAD.unpack_from(data, _DIGEST_BYTES)
    conversation, entries, size_bytes, checksum, *membership, creator, members, _ = head
    counted, summed = membership
    starts = range(_DIGEST_BYTES + _HEAD.size, len(data), KEY_BYTES)
    keys = [PublicKey(data[start : start + KEY_BYTES]) for start in starts]
    return Known(
        frozenset(keys[:members]),
        PublicKey(creator),
        frozenset(keys[members:]),
        Stored(ConversationId(conversation), entries, size_bytes, checksum, (counted, summed)),
    )


class Unrecorded:
    """The conversations whose stored record is missing or out of date."""

    def __init__(self) -> None:
        """Start with none."""
        self._since: dict[ConversationId, float] = {}
        """The times of their last changes, the earliest first."""
        self._first: dict[ConversationId, float] = {}
        """The times of their first ones, the earliest first."""
        self.entries = 0
        """Entries of all conversations, those deleted since the start included."""

    def note(self, conversations: Iterable[ConversationId], now: float) -> None:
        """Note that conversations changed now."""
        for conversation in conversations:
            self._since.pop(conversation, None)
            self._since[conversation] = now
            self._first.setdefault(conversation, now)

    def take(self, until: float, count: int, *, overdue: float = -inf) -> list[ConversationId]:
        """Return, and forget, at most `count` conversations unchanged since `until`.

        Those whose first change was at `overdue`, or before it, are among them even if they
        changed since. None while a start would read all entries anyway.
        """
        taken: list[ConversationId] = []
        if self.entries > READ_ENTRIES_MAX:
            taken = _up_to(self._first, overdue, count)
            self._forget(taken)
            unchanged = _up_to(self._since, until, count - len(taken))
            self._forget(unchanged)
            taken += unchanged
        return taken

    def _forget(self, conversations: Iterable[ConversationId]) -> None:
        for conversation in conversations:
            del self._since[conversation], self._first[conversation]


def _up_to(times: Mapping[ConversationId, float], end: float, count: int) -> list[ConversationId]:
    """Return at most `count` conversations, the earliest ones, up to a time."""
    return list(islice(takewhile(lambda one: times[one] <= end, times), count))
