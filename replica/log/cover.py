"""The entries that digest and sync cover (spec/03-order §5).

Pure, and private to log.py. An entry that a member wrote inside all cuts is
covered, and so are the entries it names. New entries only add to the cover while
the membership is unchanged, so each entry is visited once.
"""

from collections.abc import Callable, Iterable, Mapping, Set

from replica.ids import EntryId, PublicKey
from replica.log.entry import Entry
from replica.log.graph import reach
from replica.log.members import Membership


class Cover:
    """The covered ids of one log."""

    def __init__(
        self, entries: Mapping[EntryId, Entry], named: Callable[[EntryId], tuple[EntryId, ...]]
    ) -> None:
        """Start with `entries`, all admitted ones by id; `named` returns the ids one names."""
        self._entries = entries
        self._named = named
        self._authors: set[PublicKey] = set()
        self._new: list[EntryId] = []
        self._covered: set[EntryId] = set()
        self._covered_by: Membership | None = None
        self._newly_covered: dict[EntryId, list[EntryId]] = {}
        """Per covered entry, the ids that it made covered."""

    def receive(self, entry: Entry) -> None:
        """Add a newly admitted entry."""
        self._authors.add(entry.header.author)
        self._new.append(entry.id)

    def ids(self, membership: Membership) -> Set[EntryId]:
        """Return the covered ids under the current membership."""
        if not membership.kept and self._authors <= membership.roles.keys():
            self._covered_by = None
            self._new.clear()
            return self._entries.keys()
        if self._covered_by is not membership:
            self._covered_by, self._covered = membership, set()
            self._new = list(self._entries)
            self._newly_covered.clear()
        for entry_id in self._new:
            self._add(entry_id, membership)
        self._new.clear()
        return self._covered

    def offered(self, membership: Membership, ids: Iterable[EntryId]) -> list[EntryId]:
        """Return the covered ones of new entries, each after the entries it made covered."""
        covered = self.ids(membership)
        listed: dict[EntryId, None] = {}
        for entry_id in ids:
            if entry_id in covered:
                listed |= dict.fromkeys([*self._newly_covered.get(entry_id, ()), entry_id])
        return list(listed)

    def _add(self, entry_id: EntryId, membership: Membership) -> None:
        if not membership.covers(self._entries[entry_id]):
            return
        newly_covered = reach(self._named(entry_id), self._named, self._covered.__contains__)
        self._covered.add(entry_id)
        if newly_covered:
            self._covered |= newly_covered
            self._newly_covered[entry_id] = sorted(
                newly_covered, key=lambda i: self._entries[i].order_key
            )
