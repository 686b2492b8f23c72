"""Pending entries: they came before entries that they name, or before a grant (spec/02-entry §6).

Pure, and private to admission.py. A pending entry is *complete* once it passed
the check against its ancestors and every entry it names is admitted or complete.
It then lacks only a grant, to its author or to the author of a complete entry
that follows it.

A name is visited when its entry comes, when the named entry becomes complete,
and when the named entry is dropped. The work is therefore linear in the bytes
received, whatever the graph of the entries and their order of arrival.
"""

from collections import Counter
from collections.abc import Container, Iterable

from replica.ids import EntryId, PublicKey
from replica.log.entry import Entry
from replica.log.graph import reach


class PendingEntries:
    """The pending entries of one log, by id, and the names each lacks."""

    def __init__(self) -> None:
        """Start empty."""
        self.entries: dict[EntryId, Entry] = {}
        self.size_bytes = 0
        self.by_author: Counter[PublicKey] = Counter()
        self.lanes_by_author: Counter[PublicKey] = Counter()
        """Per author: the pending entries that begin a lane."""
        self._named: dict[EntryId, tuple[EntryId, ...]] = {}
        self._unmet: dict[EntryId, set[EntryId]] = {}
        """Per entry that is not complete: its names that are neither admitted nor complete."""
        self._namers: dict[EntryId, dict[EntryId, None]] = {}
        self._complete: dict[PublicKey, dict[EntryId, None]] = {}

    def add(self, entry: Entry, missing: tuple[EntryId, ...]) -> bool:
        """Add an entry that names `missing` ids; say whether all of these are complete.

        If so, the caller checks the entry and marks it complete or drops it.
        """
        self.entries[entry.id] = entry
        self.size_bytes += entry.size_bytes
        self._count(entry, 1)
        self._named[entry.id] = missing
        unmet = self._unmet[entry.id] = {i for i in missing if not self._is_complete(i)}
        for name in missing:
            self._namers.setdefault(name, {})[entry.id] = None
        return not unmet

    def mark_complete(self, entry_id: EntryId) -> list[EntryId]:
        """Mark an entry complete; return the entries that now name complete entries alone."""
        author = self.entries[entry_id].header.author
        self._complete.setdefault(author, {})[entry_id] = None
        del self._unmet[entry_id]
        ready = []
        for namer in self._namers.get(entry_id, ()):
            unmet = self._unmet[namer]
            unmet.discard(entry_id)
            if not unmet:
                ready.append(namer)
        return ready

    def with_ancestors(self, entry_id: EntryId) -> list[Entry]:
        """Return a complete entry and its pending ancestors, ancestors first; none if dropped."""
        pending = (self.entries[i] for i in self._ancestors(entry_id) if i in self.entries)
        return sorted(pending, key=lambda e: e.order_key)

    def named_by(self, entry_id: EntryId) -> tuple[EntryId, ...]:
        """Return what a pending entry names that was not admitted when it came; else nothing."""
        return self._named.get(entry_id, ())

    def missing_for(
        self, entry_id: EntryId, admitted: Container[EntryId], most: int
    ) -> list[EntryId]:
        """Return the ids of ancestors that are neither pending nor `admitted`, ascending.

        Of more than `most` those that are found first.
        """
        missing, seen, left = list[EntryId](), {entry_id}, [entry_id]
        while left and len(missing) < most:
            for name in self._named.get(left.pop(), ()):
                if name in seen or name in admitted:
                    continue
                seen.add(name)
                (left if name in self.entries else missing).append(name)
        return sorted(missing[:most])

    def missing_for_each(
        self, ids: Iterable[EntryId], admitted: Container[EntryId], most: int
    ) -> dict[EntryId, tuple[EntryId, ...]]:
        """Return `missing_for` of each of many entries, and of others; each is looked at once."""
        found: dict[EntryId, tuple[EntryId, ...]] = {}
        left = list(ids)
        while left:
            entry_id = left[-1]
            names = self._named.get(entry_id, ()) if entry_id not in found else ()
            before = [i for i in names if i in self.entries and i not in found]
            if before:
                left += before
                continue
            left.pop()
            if entry_id not in found:
                lacking: dict[EntryId, None] = {}
                for name in names:
                    if name not in admitted and len(lacking) < most:
                        lacking |= dict.fromkeys(found.get(name, (name,)))
                found[entry_id] = tuple(sorted(list(lacking)[:most]))
        return found

    def _ancestors(self, entry_id: EntryId) -> set[EntryId]:
        return reach([entry_id], lambda i: self._named.get(i, ()))

    def complete_by(self, authors: Iterable[PublicKey]) -> list[EntryId]:
        """Return the complete entries by these authors."""
        return [i for author in authors for i in self._complete.get(author, ())]

    def remove_admitted(self, entry_id: EntryId) -> None:
        """Remove a complete entry that is admitted now."""
        self._remove(entry_id)

    def drop_all(self, entry_ids: Iterable[EntryId]) -> None:
        """Drop the pending ones of these entries."""
        dropped = dict.fromkeys(entry_ids)
        if dropped.keys() >= self.entries.keys():  # a tenth of the time that they take one by one
            self.size_bytes = 0
            for held in (self.entries, self.by_author, self.lanes_by_author, self._complete):
                held.clear()
            for names in (self._named, self._unmet, self._namers):
                names.clear()
            return
        for entry_id in dropped:
            self.drop(entry_id)

    def drop(self, entry_id: EntryId) -> None:
        """Drop an entry, if it is pending; entries that name it lack it again."""
        if entry_id not in self.entries:
            return
        lost = [entry_id] if self._is_complete(entry_id) else []
        self._remove(entry_id)
        while lost:
            at = lost.pop()
            for namer in self._namers.get(at, ()):
                if self._is_complete(namer):
                    self._unmark_complete(namer)
                    self._unmet[namer] = set()
                    lost.append(namer)
                self._unmet[namer].add(at)

    def named_ids(self) -> Iterable[EntryId]:
        """Return every id that pending entries wait for, pending itself or missing."""
        return self._namers.keys()

    def fill(self, whole: Entry) -> None:
        """Replace a pending entry by `whole`, the same with its body."""
        before = self.entries[whole.id]
        self.entries[whole.id] = whole
        self.size_bytes += whole.size_bytes - before.size_bytes

    def _is_complete(self, entry_id: EntryId) -> bool:
        return entry_id in self.entries and entry_id not in self._unmet

    def _unmark_complete(self, entry_id: EntryId) -> None:
        author = self.entries[entry_id].header.author
        complete = self._complete[author]
        del complete[entry_id]
        if not complete:
            del self._complete[author]

    def _remove(self, entry_id: EntryId) -> None:
        if self._is_complete(entry_id):
            self._unmark_complete(entry_id)
        entry = self.entries.pop(entry_id)
        self.size_bytes -= entry.size_bytes
        self._count(entry, -1)
        self._unmet.pop(entry_id, None)
        for name in self._named.pop(entry_id):
            namers = self._namers[name]
            del namers[entry_id]
            if not namers:
                del self._namers[name]

    def _count(self, entry: Entry, change: int) -> None:
        author = entry.header.author
        counted = (
            (self.by_author, self.lanes_by_author) if not entry.header.seq else (self.by_author,)
        )
        for counts in counted:
            counts[author] += change
            if not counts[author]:
                del counts[author]
