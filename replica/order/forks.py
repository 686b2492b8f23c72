"""The last forking request that each entry follows (spec/03-order §4, ORD-11).

Pure. It is kept as entries are folded, so that asking for it costs no walk.
"""

from collections.abc import Iterable
from typing import NamedTuple

from replica.ids import EntryId
from replica.log import Conflict, Entry, Kind


class Fork(NamedTuple):
    """What a queued request follows where a fork is among its ancestors."""

    begun_by: Entry
    """The last of them that is a request which forks."""
    last: Entry
    """The last request of them that is this one, or follows it."""


class Forks:
    """The forks that entries follow. An entry that follows none takes no memory."""

    def __init__(self) -> None:
        """Start empty."""
        self._behind: dict[EntryId, Fork] = {}

    def add(self, entry: Entry) -> None:
        """Add a newly folded entry, behind its parents."""
        header = entry.header
        is_request = header.kind == Kind.REQUEST
        if is_request and header.conflict == Conflict.FORK:
            self._behind[entry.id] = Fork(entry, entry)
            return
        fork = self.behind(header.parents)
        if fork is not None:
            self._behind[entry.id] = Fork(fork.begun_by, entry) if is_request else fork

    def drop(self, entry_id: EntryId) -> None:
        """Remove an entry that is covered no longer, as nothing behind it is then."""
        self._behind.pop(entry_id, None)

    def begun_by(self, entry_id: EntryId) -> Entry | None:
        """Return the last forking request that an entry is, or follows, None for none."""
        fork = self._behind.get(entry_id)
        return fork.begun_by if fork is not None else None

    def behind(self, parents: Iterable[EntryId]) -> Fork | None:
        """Return the fork that an entry with these parents follows, None for none."""
        found = [self._behind[i] for i in parents if i in self._behind]
        if not found:
            return None
        return max(found, key=lambda fork: (fork.begun_by.order_key, fork.last.order_key))
