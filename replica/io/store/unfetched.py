"""The note of what a repair found nowhere in a store, until a hub was asked (DECISIONS D538, D565).

Of a conversation whose every page was damaged, nothing is left in the store to name it: the
mark knows the number of its entries, and the last entries of the newest commits. The note stays
until a hub was asked for all that the replica's key may read.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from replica.conversation import EntryStore
from replica.ids import ConversationId, EntryId
from replica.log import Entry

KEY = "repair unfetched"
_NO = b""
_SKEW_MS = 10 * 60 * 1000
"""Milliseconds by which the clock of another member may be ahead."""

Ends = tuple[tuple[ConversationId, EntryId], ...]
"""Entries, each with its conversation."""


@dataclass(frozen=True, slots=True)
class Unfetched:
    """What a store held and was found nowhere."""

    lost: int = 0
    """Number of the entries; an estimate, as that of the mark."""
    written_ms: int = 0
    """When the store was last written before the loss, in Unix milliseconds."""
    held: int = 0
    """Number of the entries that were left, of those that are not newer than that."""
    ends: Ends = ()
    """Those that the mark names: the last ones of commit groups."""

    def at(self, times: Mapping[EntryId, int]) -> "Unfetched":
        """Return the note of a store that is left with entries created at these times."""
        return replace(self, held=self._old_of(times))

    def without(self, times: Mapping[EntryId, int]) -> "Unfetched":
        """Return the note without what is back, in a store that holds just these entries now."""
        old = self._old_of(times)
        ends = tuple(end for end in self.ends if end[1] not in times)
        lost = max(self.lost - max(0, old - self.held), len(ends))
        return replace(self, lost=lost, held=old, ends=ends)

    def with_earlier(
        self, earlier: "Unfetched | None", times: Mapping[EntryId, int]
    ) -> "Unfetched":
        """Return the note of both losses, in a store that is left with these entries."""
        if earlier is None:
            return self.at(times)
        earlier = earlier.without(times)
        both = replace(
            self,
            lost=self.lost + earlier.lost,
            written_ms=max(self.written_ms, earlier.written_ms),
            ends=tuple(dict.fromkeys((*earlier.ends, *self.ends))),
        )
        return both.at(times)

    def _old_of(self, times: Mapping[EntryId, int]) -> int:
        # What others wrote since was never lost, and makes up for nothing.
        newest_ms = self.written_ms + _SKEW_MS
        return sum(time_ms <= newest_ms for time_ms in times.values())


def times_of(entries: Iterable[Entry]) -> dict[EntryId, int]:
    """Return when entries were created, in Unix milliseconds."""
    return {entry.id: entry.header.create_time_ms for entry in entries}


async def note_unfetched(store: EntryStore, unfetched: Unfetched) -> None:
    """Note that a hub is to be asked. Raises StoreError."""
    await store.put_meta(KEY, _encode(unfetched))


async def note_fetched(store: EntryStore) -> None:
    """Note that a hub was asked, and that all it has came. Raises StoreError."""
    await store.put_meta(KEY, _NO)


async def unfetched_of(store: EntryStore) -> Unfetched | None:
    """Return what a hub is to be asked for; None if nothing. Raises ValueDamaged, StoreError."""
    return decode(await store.get_meta(KEY))


def decode(value: bytes | None) -> Unfetched | None:
    """Return the note in a small value; one of an earlier version states no numbers."""
    if not value:
        return None
    record = json.loads(value)
    if not isinstance(record, dict):
        return Unfetched()
    ends = ((bytes.fromhex(c), bytes.fromhex(i)) for c, i in record.pop("ends"))
    return Unfetched(**record, ends=tuple((ConversationId(c), EntryId(i)) for c, i in ends))


def _encode(unfetched: Unfetched) -> bytes:
    record = {
        "lost": unfetched.lost,
        "written_ms": unfetched.written_ms,
        "held": unfetched.held,
        "ends": [[conversation.hex(), id_.hex()] for conversation, id_ in unfetched.ends],
    }
    return json.dumps(record).encode()
