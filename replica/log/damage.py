"""What a store lost of a conversation, and what is closed until it is back (spec/04-link §10).

Pure, and private to conversation.py. The driver tells once, as it restores a
conversation, which ids its store can no longer read; what comes back, and what
waited for it, is followed here.

A store loses entries in any order, so what is left is no log anybody wrote: a
lost revocation lets its key in again, a lost grant shuts a member out. As long
as anything of the membership is missing, nobody can say who may do what.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from replica.ids import EntryId, Track
from replica.log.entry import Entry

MEMBERSHIP_TRACKS = frozenset({Track.ALL, Track.MEMBERSHIP})


@dataclass(frozen=True, slots=True)
class Lost:
    """What was stored once and can't be read any more."""

    entries: frozenset[EntryId] = frozenset()
    """Their ids, as far as these can be told."""
    membership: frozenset[EntryId] = frozenset()
    """Those of the membership track, and the genesis."""
    is_unreadable: bool = False
    """Not even what was stored can be told."""

    def __bool__(self) -> bool:
        """Say whether anything was lost."""
        return bool(self.entries or self.membership or self.is_unreadable)


NOTHING_LOST = Lost()


class Damage:
    """What one conversation lacks because its store lost it."""

    def __init__(
        self,
        lost: Lost = NOTHING_LOST,
        pending: Iterable[Entry] = (),
        absent: Iterable[EntryId] = (),
    ) -> None:
        """Begin with what was lost, the stored entries that wait, and what these lack."""
        self.missing: set[EntryId] = {*lost.entries, *lost.membership, *absent}
        """Ids that make the conversation whole again."""
        self._is_unreadable = lost.is_unreadable
        self._membership = set(lost.membership)
        self._pending: set[EntryId] = set()
        for entry in pending:
            self._pending.add(entry.id)
            if entry.header.track in MEMBERSHIP_TRACKS:
                self._membership.add(entry.id)

    def __bool__(self) -> bool:
        """Say whether anything is missing or waits for what is."""
        return bool(self.missing or self._pending or self._is_unreadable)

    @property
    def is_blocking(self) -> bool:
        """Say whether the membership is incomplete: nobody can tell who may do what."""
        return bool(self._membership) or self._is_unreadable

    def add_missing(self, ids: Iterable[EntryId]) -> None:
        """Take it that what has come back follows these, which are not here either."""
        self.missing.update(ids)

    def mark_unstored(self, entry_id: EntryId) -> None:
        """Take it that a waiting entry has got its body: as it is now, it is not stored."""
        self._pending.discard(entry_id)

    def receive(self, admitted: Iterable[Entry]) -> frozenset[EntryId]:
        """Take entries as admitted; return which of them the store holds already."""
        if not self:
            return frozenset()
        ids = {entry.id for entry in admitted}
        stored = frozenset(ids & self._pending)
        self.missing -= ids
        self._membership -= ids
        self._pending -= ids
        return stored
