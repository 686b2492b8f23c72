"""Which entries are let into a log, and what waits until it may be (spec/02-entry §6).

Pure. Whether an entry is admitted depends only on the entry and its ancestors,
never on arrival order, configuration or clocks; what came too early waits, and
costs whoever delivered it.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from replica.errors import EntryRefused
from replica.ids import EntryId, PublicKey
from replica.log.checks import check_ancestors, check_contents, filled
from replica.log.entry import Entry, Header
from replica.log.kinds import Kind
from replica.log.pending import PendingEntries


@dataclass(frozen=True, slots=True)
class Admitted:
    """Entries now in the log, in an order that keeps ancestors first."""

    entries: tuple[Entry, ...]
    refused: tuple[tuple[Entry, EntryRefused], ...] = ()
    """Pending entries that turned out to break a rule."""
    stored: frozenset[EntryId] = frozenset()
    """Those of them that waited in the store: not to be stored again."""

    @property
    def unstored(self) -> tuple[Entry, ...]:
        """What the caller persists."""
        return tuple(entry for entry in self.entries if entry.id not in self.stored)


@dataclass(frozen=True, slots=True)
class Pending:
    """The entry waits: for these ids, or (none) for a grant to its author."""

    missing: tuple[EntryId, ...]
    refused: tuple[tuple[Entry, EntryRefused], ...] = ()
    """Pending entries that this one showed to break a rule."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The entry is here already; `filled` is the stored entry where its body was missing."""

    filled: Entry | None = None


Verdict = Admitted | Pending | Duplicate


@dataclass(slots=True)
class _Change:
    """What one call of admit changes."""

    entries: list[Entry] = field(default_factory=list)
    refused: list[tuple[Entry, EntryRefused]] = field(default_factory=list)
    ready: deque[EntryId] = field(default_factory=deque)
    """Pending entries whose names are all complete by now."""
    admissible: deque[EntryId] = field(default_factory=deque)
    """Complete entries of granted authors: admitted with all they follow."""


class Admission:
    """Lets entries into one log; `pending` is what waits, by id."""

    def __init__(
        self,
        genesis: EntryId,
        entries: Mapping[EntryId, Entry],
        insert: Callable[[Entry], Iterable[PublicKey]],
    ) -> None:
        """Read `entries`, every admitted one by id.

        `insert` adds an entry to them, and returns the keys to which it grants a role.
        """
        self._genesis = genesis
        self._entries = entries
        self._insert = insert
        self._held = PendingEntries()
        self._granted: set[PublicKey] = set()
        self.pending: Mapping[EntryId, Entry] = self._held.entries

    def admit(self, entry: Entry, *, verified: bool) -> Verdict:
        """Admit, hold back or refuse an entry that is not admitted yet. Raises EntryRefused."""
        known = self.pending.get(entry.id)
        if known is not None:
            whole = filled(known, entry)
            if whole is not None:
                self._held.fill(whole)
            return Duplicate()
        missing = self._missing(entry, check_contents(entry, verified=verified))
        change = _Change()
        if self._held.add(entry, missing):
            try:
                self._mark_complete(entry, change)
            except EntryRefused:
                self._held.drop(entry.id)
                raise
        self._release(change)
        refused = tuple(change.refused)
        if not change.entries:
            return Pending(missing, refused)
        return Admitted(tuple(change.entries), refused)

    def _missing(self, entry: Entry, named: tuple[EntryId, ...]) -> tuple[EntryId, ...]:
        if entry.header.kind == Kind.GENESIS:
            return ()
        wanted = (*named, self._genesis)
        return tuple(dict.fromkeys(i for i in wanted if i not in self._entries))

    def _mark_complete(self, entry: Entry, change: _Change) -> None:
        """Check the place of an entry, all of whose names are known; raise EntryRefused."""
        check_ancestors(entry, self._header)
        change.ready += self._held.mark_complete(entry.id)
        if entry.header.kind == Kind.GENESIS or entry.header.author in self._granted:
            change.admissible.append(entry.id)

    def _header(self, entry_id: EntryId) -> Header:
        entry = self._entries.get(entry_id) or self.pending[entry_id]
        return entry.header

    def _release(self, change: _Change) -> None:
        """Admit what the change sets free, and what that sets free."""
        while change.admissible or change.ready:
            if change.admissible:
                self._admit_with_ancestors(change.admissible.popleft(), change)
                continue
            entry = self.pending[change.ready.popleft()]
            try:
                self._mark_complete(entry, change)
            except EntryRefused as error:
                change.refused.append((entry, error))
                self._held.drop(entry.id)

    def _admit_with_ancestors(self, entry_id: EntryId, change: _Change) -> None:
        # What lacks only grants is admitted where an entry of a granted author
        # follows it: else a grant that a later cut made void, and that nobody
        # need hold, would be needed to sync honest entries.
        for entry in self._held.with_ancestors(entry_id):
            self._held.remove_admitted(entry.id)
            granted = self._insert(entry)
            self._granted.update(granted)
            change.entries.append(entry)
            change.admissible += self._held.complete_by(granted)

    # --- what waits ------------------------------------------------------

    @property
    def pending_bytes(self) -> int:
        """Bytes held for waiting entries."""
        return self._held.size_bytes

    def missing_for(self, entry_id: EntryId) -> list[EntryId]:
        """Return what a waiting entry waits for that did not come yet, ascending."""
        return self._held.missing_for(entry_id, self._entries)

    def all_missing(self) -> set[EntryId]:
        """Return what waiting entries name and that is not here at all."""
        known = (self._entries, self.pending)
        return {i for i in self._held.named_ids() if not any(i in ids for ids in known)}

    def drop(self, entry_ids: Iterable[EntryId]) -> None:
        """Forget waiting entries; whoever holds them sends them again."""
        for entry_id in tuple(entry_ids):
            self._held.drop(entry_id)
