"""The sorted heads of the covered lanes, kept while entries come and go (spec/03-order §5).

Pure, and private to log.py. An entry that becomes covered moves one head, and one that
is covered no longer moves it back. Without this, every entry would cost a pass over all
lanes. The heads are kept packed too, so that a digest costs their hash alone.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping

from replica.ids import Digest, EntryId, Position
from replica.log.cover import Changes
from replica.log.digest import digest_of_packed, head_bytes
from replica.log.entry import Entry
from replica.log.meter import Meter

_UNREAD_MAX = 256
"""Changes that wait to be read at most, so that the one that reads them is not held up."""
_MOVE_COST = 4
"""A head is moved at the cost of sorting so many."""


class Heads:
    """The heads of the covered entries."""

    def __init__(self, entries: Mapping[EntryId, Entry], changes: Changes, meter: Meter) -> None:
        """Follow the changes of a cover over `entries`, all admitted ones by id."""
        self._entries = entries
        self._changes = changes
        self._meter = meter
        self._at: dict[EntryId, Position] = {}
        self._sorted: list[Position] = []
        self._packed: list[bytes] = []
        self._followed: dict[EntryId, int] = {}
        """Per entry that several follow in its lane: how many."""
        self._digest: Digest | None = None

    def follow(self, unread_max: int = _UNREAD_MAX) -> None:
        """Move with the changes, once there are more than `unread_max`."""
        if len(self._changes.steps) <= unread_max:
            return
        assert not self._meter.is_paused, "a log that pauses is nobody else's to look at"
        self._digest = None
        added: list[Entry] = []
        for entry_id, is_covered in self._meter.turns(self._changes.read()):
            entry = self._entries[entry_id]
            if is_covered:
                added.append(entry)
                continue
            self._add(added)
            added = []
            prev = entry.header.prev
            self._remove(entry, self._entries[prev] if prev is not None else None)
        self._add(added)

    def _add(self, entries: Iterable[Entry]) -> None:
        """Add covered entries, ancestors first."""
        gone: list[Position] = []
        came: dict[EntryId, Position] = {}
        for entry in self._meter.turns(entries):
            prev = entry.header.prev
            before = self._at.pop(prev, None) if prev is not None else None
            if prev is not None and before is None:
                self._followed[prev] = self._followed.get(prev, 1) + 1
            if prev is not None and before is not None and came.pop(prev, None) is None:
                gone.append(before)
            self._at[entry.id] = came[entry.id] = entry.position
        if _MOVE_COST * (len(gone) + len(came)) >= len(self._at):
            self._sorted = sorted(self._at.values())
            self._packed = list(map(head_bytes, self._sorted))
            return
        for head in gone:
            self._delete(head)
        for head in came.values():
            self._insert(head)

    def _remove(self, entry: Entry, prev: Entry | None) -> None:
        """Remove an entry that none given follows in its lane any more; `prev` is its prev."""
        del self._at[entry.id]
        self._delete(entry.position)
        if prev is None:
            return
        followed = self._followed.pop(prev.id, 1) - 1
        if not followed:
            self._at[prev.id] = prev.position
            self._insert(prev.position)
        elif followed > 1:
            self._followed[prev.id] = followed

    def _insert(self, head: Position) -> None:
        index = bisect_left(self._sorted, head)
        self._sorted.insert(index, head)
        self._packed.insert(index, head_bytes(head))

    def _delete(self, head: Position) -> None:
        index = bisect_left(self._sorted, head)
        del self._sorted[index]
        del self._packed[index]

    def sorted(self) -> tuple[Position, ...]:
        """Return the heads: sorted; a forked lane has several."""
        self.follow(0)
        return tuple(self._sorted)

    def digest(self) -> Digest:
        """Return the digest of the heads."""
        self.follow(0)
        if self._digest is None:
            self._digest = digest_of_packed(self._packed)
        return self._digest
