"""Entries that came before what they follow (spec/02-entry §6).

Pure, and private to log.py. An entry waits for ids that are missing or,
without any, for a grant to its author; keys and ids are hashes or points and
never collide.
"""

from collections.abc import Iterable

from replica.entry import Entry
from replica.ids import EntryId, PublicKey


class Waiting:
    """What waits, by id, and what for."""

    def __init__(self) -> None:
        """Start empty."""
        self.entries: dict[EntryId, Entry] = {}
        self.size_bytes = 0
        self._awaited: dict[EntryId, tuple[bytes, ...]] = {}
        self._waiters: dict[bytes, set[EntryId]] = {}

    def hold(self, entry: Entry, missing: tuple[EntryId, ...]) -> None:
        """Let an entry wait; for other ids than before, if it waits already."""
        self.release(entry.id)
        self.entries[entry.id] = entry
        self.size_bytes += entry.size_bytes
        awaited = self._awaited[entry.id] = missing or (entry.header.author,)
        for key in awaited:
            self._waiters.setdefault(key, set()).add(entry.id)

    def release(self, entry_id: EntryId) -> None:
        """Let go of an entry, if it waits."""
        entry = self.entries.pop(entry_id, None)
        if entry is None:
            return
        self.size_bytes -= entry.size_bytes
        for key in self._awaited.pop(entry_id):
            waiters = self._waiters[key]
            waiters.discard(entry_id)
            if not waiters:
                del self._waiters[key]

    def fill(self, filled: Entry) -> None:
        """Put a waiting entry's body in its place."""
        before = self.entries[filled.id]
        self.entries[filled.id] = filled
        self.size_bytes += filled.size_bytes - before.size_bytes

    def waiters(self, keys: Iterable[bytes]) -> set[EntryId]:
        """Return what waits for any of these ids or grants."""
        return set().union(*(self._waiters.get(key, ()) for key in keys))

    def written_by(self, keys: Iterable[PublicKey]) -> set[EntryId]:
        """Return what these authors have waiting."""
        authors = set(keys)
        return {i for i, e in self.entries.items() if e.header.author in authors}

    def above(self, entry_id: EntryId) -> set[EntryId]:
        """Return `entry_id` and what waits for it; nothing where it lacks an id itself."""
        found: set[EntryId] = set()
        todo = set(self.complete([entry_id])[-1:])
        while todo:
            at = todo.pop()
            found.add(at)
            todo |= self.waiters((at,)) - found
        return found

    def complete(self, roots: Iterable[EntryId]) -> list[EntryId]:
        """Return the roots that lack only grants, with all they wait for, ancestors first."""
        lacking_none: dict[EntryId, bool] = {}
        ordered: list[EntryId] = []
        for root in roots:
            todo = [root]
            while todo:
                at = todo[-1]
                unseen = [i for i in self._named(at) if i not in lacking_none]
                if unseen and at not in lacking_none:
                    todo += unseen
                    continue
                todo.pop()
                if at not in lacking_none:
                    is_here = at in self.entries
                    lacking_none[at] = is_here and all(lacking_none[i] for i in self._named(at))
                    ordered.append(at)
        wanted = {root for root in roots if lacking_none[root]}
        for at in reversed(ordered):
            if at in wanted:
                wanted.update(self._named(at))
        return [at for at in ordered if at in wanted]

    def _named(self, entry_id: EntryId) -> list[EntryId]:
        """Return the ids an entry waits for; none for what is not here or lacks a grant."""
        entry = self.entries.get(entry_id)
        if entry is None:
            return []
        return [EntryId(i) for i in self._awaited[entry_id] if i != entry.header.author]
