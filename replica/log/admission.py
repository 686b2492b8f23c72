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
from replica.log.checks import check_contents, check_place, filled
from replica.log.entry import Entry, Header
from replica.log.kinds import Kind
from replica.log.waiting import Waiting


@dataclass(frozen=True, slots=True)
class Admitted:
    """Entries now in the log, in an order that keeps ancestors first."""

    entries: tuple[Entry, ...]
    refused: tuple[tuple[Entry, EntryRefused], ...] = ()
    """Waiting entries that turned out to break a rule."""
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
    """Waiting entries that this one showed to break a rule."""


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
    """Waiting entries whose names are all complete by now."""
    vouched: deque[EntryId] = field(default_factory=deque)
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
        self._waiting = Waiting()
        self._granted: set[PublicKey] = set()
        self.pending: Mapping[EntryId, Entry] = self._waiting.entries

    def admit(self, entry: Entry, *, verified: bool) -> Verdict:
        """Admit, hold back or refuse an entry that is not admitted yet. Raises EntryRefused."""
        known = self.pending.get(entry.id)
        if known is not None:
            whole = filled(known, entry)
            if whole is not None:
                self._waiting.fill(whole)
            return Duplicate()
        missing = self._missing(entry, check_contents(entry, verified=verified))
        change = _Change()
        if self._waiting.hold(entry, missing):
            try:
                self._complete(entry, change)
            except EntryRefused:
                self._waiting.release(entry.id)
                raise
        self._settle(change)
        refused = tuple(change.refused)
        if not change.entries:
            return Pending(missing, refused)
        return Admitted(tuple(change.entries), refused)

    def _missing(self, entry: Entry, named: tuple[EntryId, ...]) -> tuple[EntryId, ...]:
        if entry.header.kind == Kind.GENESIS:
            return ()
        wanted = (*named, self._genesis)
        return tuple(dict.fromkeys(i for i in wanted if i not in self._entries))

    def _complete(self, entry: Entry, change: _Change) -> None:
        """Check the place of an entry, all of whose names are known; raise EntryRefused."""
        check_place(entry, self._header)
        change.ready += self._waiting.complete(entry.id)
        if entry.header.kind == Kind.GENESIS or entry.header.author in self._granted:
            change.vouched.append(entry.id)

    def _header(self, entry_id: EntryId) -> Header:
        entry = self._entries.get(entry_id) or self.pending[entry_id]
        return entry.header

    def _settle(self, change: _Change) -> None:
        """Admit what the change sets free, and what that sets free."""
        while change.vouched or change.ready:
            if change.vouched:
                self._take(change.vouched.popleft(), change)
                continue
            waiting = self.pending[change.ready.popleft()]
            try:
                self._complete(waiting, change)
            except EntryRefused as error:
                change.refused.append((waiting, error))
                self._waiting.release(waiting.id)

    def _take(self, vouched: EntryId, change: _Change) -> None:
        # What lacks only grants is admitted where an entry of a granted author
        # follows it: else a grant that a later cut made void, and that nobody
        # need hold, would be needed to sync honest entries.
        for entry in self._waiting.lineage(vouched):
            self._waiting.admit(entry.id)
            granted = self._insert(entry)
            self._granted.update(granted)
            change.entries.append(entry)
            change.vouched += self._waiting.by(granted)

    # --- what waits ------------------------------------------------------

    @property
    def pending_bytes(self) -> int:
        """Bytes held for waiting entries."""
        return self._waiting.size_bytes

    def lacking(self, entry_id: EntryId) -> list[EntryId]:
        """Return what a waiting entry waits for that did not come yet, ascending."""
        return self._waiting.lacking(entry_id, self._entries)

    def absent(self) -> set[EntryId]:
        """Return what waiting entries name and that is not here at all."""
        here = (self._entries, self.pending)
        return {i for i in self._waiting.names() if not any(i in known for known in here)}

    def drop(self, entry_ids: Iterable[EntryId]) -> None:
        """Forget waiting entries; whoever holds them sends them again."""
        for entry_id in tuple(entry_ids):
            self._waiting.release(entry_id)
