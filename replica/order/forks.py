"""The last forking request that each entry follows (spec/03-order §4, ORD-11).

Pure. It is kept as entries are folded, so that asking for it costs no walk.
"""

from collections.abc import Iterable

from replica.ids import EntryId, Track
from replica.log import Conflict, Entry, Kind


class Forks:
    """Per entry of the conversation track: the last request that forks up to and including it.

    An entry with no such request behind it takes no memory.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._last: dict[EntryId, Entry] = {}

    def add(self, entry: Entry) -> None:
        """Add a newly folded entry, behind its parents; one of another track is ignored."""
        header = entry.header
        if header.track != Track.CONVERSATION:
            return
        forks = header.kind == Kind.REQUEST and header.conflict == Conflict.FORK
        last = entry if forks else self.last(header.parents)
        if last is not None:
            self._last[entry.id] = last

    def drop(self, entry_id: EntryId) -> None:
        """Remove an entry that is covered no longer, as nothing behind it is then."""
        self._last.pop(entry_id, None)

    def last(self, parents: Iterable[EntryId]) -> Entry | None:
        """Return the last one, in (lamport, id) order, that an entry with these parents follows."""
        found = [self._last[i] for i in parents if i in self._last]
        return max(found, key=lambda e: e.order_key) if found else None
