"""Admission of entries to a log, and the entries pending before it (spec/02-entry §6).

Pure. Whether an entry is admitted depends only on the entry and its ancestors,
never on arrival order, configuration or clocks. An entry that comes too early
is pending, and counts against the peer that sent it.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field

from replica.errors import EntryRefused
from replica.ids import EntryId, PublicKey
from replica.log.checks import check_ancestors, check_contents, filled
from replica.log.entry import Entry, Header
from replica.log.kinds import Kind
from replica.log.meter import Meter
from replica.log.pending import PendingEntries


@dataclass(frozen=True, slots=True)
class Admitted:
    """Newly admitted entries, ancestors first."""

    entries: tuple[Entry, ...]
    refused: tuple[tuple[Entry, EntryRefused], ...] = ()
    """Pending entries that break a rule, as is known now."""
    stored: frozenset[EntryId] = frozenset()
    """Ids of those that the store holds already."""

    @property
    def unstored(self) -> tuple[Entry, ...]:
        """The entries that the caller persists."""
        if not self.stored:
            return self.entries
        return tuple(entry for entry in self.entries if entry.id not in self.stored)


@dataclass(frozen=True, slots=True)
class Pending:
    """The entry is pending: `missing` ids must come, or, if there are none, a grant."""

    missing: tuple[EntryId, ...]
    refused: tuple[tuple[Entry, EntryRefused], ...] = ()
    """Pending entries that break a rule, as this one shows."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The entry is known; `filled` is the admitted entry with a body that was missing."""

    filled: Entry | None = None


Verdict = Admitted | Pending | Duplicate
Insert = Callable[[Entry], Iterable[PublicKey]]
"""Adds an entry to the admitted ones, and returns the keys to which it grants a role."""


@dataclass(slots=True)
class _Change:
    """The changes made by one call of `admit`."""

    insert: Insert
    entries: list[Entry] = field(default_factory=list)
    refused: list[tuple[Entry, EntryRefused]] = field(default_factory=list)
    ready: deque[EntryId] = field(default_factory=deque)
    """Pending entries that name complete entries alone."""
    admissible: deque[EntryId] = field(default_factory=deque)
    """Complete entries of granted authors: admitted with all their ancestors."""


class Admission:
    """The admission of entries to one log; `pending` are the entries held back, by id."""

    def __init__(self, genesis: EntryId, entries: Mapping[EntryId, Entry], meter: Meter) -> None:
        """Start with `entries`, all admitted ones by id."""
        self._genesis = genesis
        self._entries = entries
        self._meter = meter
        self._pending = PendingEntries()
        self._granted: set[PublicKey] = set()
        self.granted: Set[PublicKey] = self._granted
        """The keys to which any entry grants a role, whether it counts or not."""
        self.pending: Mapping[EntryId, Entry] = self._pending.entries

    def admit(self, entry: Entry, insert: Insert, *, verified: bool) -> Verdict:
        """Admit or hold back an entry that is not admitted yet. Raises EntryRefused."""
        known = self.pending.get(entry.id)
        if known is not None:
            whole = filled(known, entry)
            if whole is not None:
                self._pending.fill(whole)
            return Duplicate()
        named = check_contents(entry, verified=verified, turn=self._meter.turn)
        missing = self._missing(entry, named)
        if not missing and not self.pending and self._is_granted(entry):
            return self._admit_at_once(entry, insert)
        change = _Change(insert)
        if self._pending.add(entry, missing):
            try:
                self._mark_complete(entry, change)
            except EntryRefused:
                self._pending.drop(entry.id)
                raise
        self._release(change)
        refused = tuple(change.refused)
        if not change.entries:
            return Pending(missing, refused)
        return Admitted(tuple(change.entries), refused)

    def _admit_at_once(self, entry: Entry, insert: Insert) -> Admitted:
        """Admit an entry that lacks nothing, while none is pending. Raises EntryRefused."""
        check_ancestors(entry, self._header)
        self._granted.update(insert(entry))
        return Admitted((entry,))

    def _is_granted(self, entry: Entry) -> bool:
        return entry.header.kind == Kind.GENESIS or entry.header.author in self._granted

    def _missing(self, entry: Entry, named: tuple[EntryId, ...]) -> tuple[EntryId, ...]:
        if entry.header.kind == Kind.GENESIS:
            return ()
        wanted = (*named, self._genesis)
        return tuple(dict.fromkeys(i for i in wanted if i not in self._entries))

    def _mark_complete(self, entry: Entry, change: _Change) -> None:
        """Check an entry against the entries it names, all complete. Raises EntryRefused."""
        check_ancestors(entry, self._header)
        change.ready += self._pending.mark_complete(entry.id)
        if self._is_granted(entry):
            change.admissible.append(entry.id)

    def _header(self, entry_id: EntryId) -> Header:
        entry = self._entries.get(entry_id) or self.pending[entry_id]
        return entry.header

    def _release(self, change: _Change) -> None:
        """Admit every pending entry that the change releases, directly or in turn."""
        while change.admissible or change.ready:
            self._meter.turn()
            if change.admissible:
                self._admit_with_ancestors(change.admissible.popleft(), change)
                continue
            entry = self.pending[change.ready.popleft()]
            try:
                self._mark_complete(entry, change)
            except EntryRefused as error:
                change.refused.append((entry, error.with_traceback(None)))
                self._pending.drop(entry.id)

    def _admit_with_ancestors(self, entry_id: EntryId, change: _Change) -> None:
        # Entries that lack only a grant are admitted with an entry of a granted
        # author that follows them. Else valid entries could not be synced without
        # a grant that a later cut made void, and that no replica need hold.
        for entry in self._meter.turns(self._pending.with_ancestors(entry_id)):
            self._pending.remove_admitted(entry.id)
            granted = change.insert(entry)
            self._granted.update(granted)
            change.entries.append(entry)
            change.admissible += self._pending.complete_by(granted)

    # --- pending entries -------------------------------------------------

    @property
    def pending_bytes(self) -> int:
        """Bytes held for pending entries."""
        return self._pending.size_bytes

    def pending_by(self, author: PublicKey) -> int:
        """Count the pending entries of an author."""
        return self._pending.by_author[author]

    def pending_lanes_by(self, author: PublicKey) -> int:
        """Count the pending entries of an author that begin a lane."""
        return self._pending.lanes_by_author[author]

    def missing_for(self, entry_id: EntryId, most: int) -> list[EntryId]:
        """Return at most so many ids of the missing ancestors of a pending entry, ascending."""
        return self._pending.missing_for(entry_id, self._entries, most)

    def named_by(self, entry_id: EntryId) -> tuple[EntryId, ...]:
        """Return what a pending entry names that is not admitted; nothing for any other entry."""
        return tuple(i for i in self._pending.named_by(entry_id) if i not in self._entries)

    def missing_for_each(
        self, ids: Iterable[EntryId], most: int
    ) -> dict[EntryId, tuple[EntryId, ...]]:
        """Return what is missing for each of many pending entries, looking at each once."""
        return self._pending.missing_for_each(ids, self._entries, most)

    def all_missing(self) -> set[EntryId]:
        """Return the ids that pending entries name and that are neither admitted nor pending."""
        known = (self._entries, self.pending)
        return {i for i in self._pending.named_ids() if not any(i in ids for ids in known)}

    def drop(self, entry_ids: Iterable[EntryId]) -> None:
        """Forget pending entries; a peer that holds them sends them again."""
        self._pending.drop_all(entry_ids)
