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
        """Return `entry_id` and what waits for it, directly or not."""
        found: set[EntryId] = set()
        todo = {entry_id}
        while todo:
            at = todo.pop()
            found.add(at)
            todo |= self.waiters((at,)) - found
        return found

    def complete_below(self, entry_id: EntryId) -> list[EntryId]:
        """Return what `entry_id` waits for and itself, ancestors first; none if any is missing.

        Grants to the authors do not count as missing.
        """
        ordered: list[EntryId] = []
        seen: set[EntryId] = set()
        todo = [(entry_id, False)]
        while todo:
            at, is_done = todo.pop()
            entry = self.entries.get(at)
            if is_done:
                ordered.append(at)
            elif entry is None:
                return []
            elif at not in seen:
                seen.add(at)
                todo.append((at, True))
                awaited = self._awaited[at]
                if awaited != (entry.header.author,):
                    todo += [(EntryId(i), False) for i in awaited]
        return ordered
