"""Entries that a store lost, and the operations blocked until they return (spec/04-link §10).

Pure. When a driver restores a conversation, it states once which ids its store can
no longer read. This module then tracks the entries that come back and the pending
entries that waited for them.

A store may lose any entries, so the rest may be a log that nobody wrote: without a
lost revocation its key is a member again, without a lost grant a member is none.
While a membership entry is missing, no permission can be decided.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from replica.ids import EntryId, Track
from replica.log.entry import Entry

MEMBERSHIP_TRACKS = frozenset({Track.ALL, Track.MEMBERSHIP})


@dataclass(frozen=True, slots=True)
class Lost:
    """Entries that were stored and can't be read any more."""

    entries: frozenset[EntryId] = frozenset()
    """Their ids, as far as these are known."""
    membership: frozenset[EntryId] = frozenset()
    """Those of the membership track, and the genesis."""
    is_unreadable: bool = False
    """The ids of the stored entries are unknown as well."""

    def __bool__(self) -> bool:
        """Say whether anything was lost."""
        return bool(self.entries or self.membership or self.is_unreadable)


NOTHING_LOST = Lost()


class Damage:
    """The entries that one conversation lacks because its store lost them."""

    def __init__(
        self,
        lost: Lost = NOTHING_LOST,
        pending: Iterable[Entry] = (),
        absent: Iterable[EntryId] = (),
    ) -> None:
        """Start with the lost ids, the stored entries that are pending, and the ids these lack."""
        self.missing: set[EntryId] = {*lost.entries, *lost.membership, *absent}
        """The ids that complete the conversation again."""
        self._is_unreadable = lost.is_unreadable
        self._membership = set(lost.membership)
        self._pending: set[EntryId] = set()
        for entry in pending:
            self._pending.add(entry.id)
            if entry.header.track in MEMBERSHIP_TRACKS:
                self._membership.add(entry.id)

    def __bool__(self) -> bool:
        """Say whether any entry is missing, or pending for a missing one."""
        return bool(self.missing or self._pending or self._is_unreadable)

    @property
    def is_blocking(self) -> bool:
        """Say whether the membership is incomplete, so that no permission can be decided."""
        return bool(self._membership) or self._is_unreadable

    def add_missing(self, ids: Iterable[EntryId]) -> None:
        """Add ids that a returned entry names and that are missing as well."""
        self.missing.update(ids)

    def mark_unstored(self, entry_id: EntryId) -> None:
        """Note that a pending entry was given its body: in this form it is not stored."""
        self._pending.discard(entry_id)

    def receive(self, admitted: Iterable[Entry]) -> frozenset[EntryId]:
        """Note admitted entries; return the ids of those that the store holds already."""
        ids = {entry.id for entry in admitted}
        stored = frozenset(ids & self._pending)
        self.missing -= ids
        self._membership -= ids
        self._pending -= ids
        return stored
