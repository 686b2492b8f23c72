"""Claims about disks and acks: no invented or lost entries, no early acks."""

from collections.abc import Iterable, Mapping, Set

from replica.conversation.conversation import Conversation
from replica.ids import EntryId, Position
from replica.link import messages as m
from replica.log.entry import Entry
from replica.log.kinds import Kind
from tests.simulation.disk import Disk
from tests.simulation.mix import Mix
from tests.simulation.oracle.history import History, Violation, short

EXPECTED_FAULTS = {
    "CONVERSATION_NOT_FOUND", "CONVERSATION_DELETED", "LANES_DIVERGED", "PENDING_FULL",
    "LINK_IDLE", "STORE_FULL",
}  # fmt: skip
"""Faults that honest replicas may receive; any other is a bug but ROLE_FORBIDS behind a cut."""

MEMBERSHIP_KINDS = (Kind.GENESIS, Kind.MEMBER)


class Stores:
    """The entries that each node wrote, stored, accepted and acked."""

    def __init__(self, history: History, mix: Mix) -> None:
        self.acks = 0
        self.forks = 0
        self._books = history
        self._may_fork = mix.may_fork
        self._accepted_by: dict[str, set[EntryId]] = {}
        self._acked: set[EntryId] = set()
        self._places: dict[tuple[bytes, bytes, int, int, int], EntryId] = {}

    # --- during the run ------------------------------------------------------------

    def durable(self, name: str, entry: Entry) -> None:
        """Record a durable entry; on another node's disk it is part of the history."""
        record = self._books.records.get(entry.id)
        if record is None or record.writer == name:
            return  # check_stores reports entries without an author
        h = entry.header
        place = (entry.conversation, h.author, h.epoch, h.track, h.seq)
        if self._places.setdefault(place, entry.id) != entry.id:
            self.forks += 1
            if not self._may_fork:
                raise Violation(f"{record.writer} showed two entries at one position: {h.seq}")

    def accepted(self, name: str, entries: Iterable[Entry]) -> None:
        """Record the entries that a replica delivered to its application."""
        seen = self._accepted_by.setdefault(name, set())
        for entry in entries:
            self._books.check(name, entry)
            seen.add(entry.id)

    def acked(self, name: str, positions: Iterable[Position], hub_disk: Disk) -> None:
        """Check an ack: the entry and its lane ancestors must have been durable at the hub."""
        for position in positions:
            at: EntryId | None = position.id
            while at is not None and at not in self._acked:
                if at not in hub_disk.ever:
                    raise Violation(f"{name} was acked {at.hex()[:6]}, never durable at the hub")
                self._acked.add(at)
                self.acks += 1
                at = self._books[at].entry.header.prev

    def assumed_acked(self, name: str, ids: Iterable[EntryId], hub_disk: Disk) -> None:
        """Check the entries that a replica no longer counts as unacked."""
        early = set(ids) - hub_disk.ever
        if early and not self._may_fork:
            raise Violation(f"{name} counts {short(early)} as acked, never durable at the hub")

    def failed(self, name: str, entry_id: EntryId | None, fault: m.Fault, hub_disk: Disk) -> None:
        """Check a fault: honest replicas cause only a few kinds."""
        behind_cut = fault.reason == "ROLE_FORBIDS" and not self._is_covered(entry_id, hub_disk)
        if fault.reason not in EXPECTED_FAULTS and not behind_cut:
            raise Violation(f"{name} received {fault.reason}: {fault.detail}")

    def _is_covered(self, entry_id: EntryId | None, disk: Disk) -> bool:
        """Say whether a fresh store that reads this disk would be sent the entry (ORD-13)."""
        if entry_id is None:
            return True
        conversation = self._books[entry_id].entry.conversation
        fresh = Conversation(conversation)
        for entry in disk.conversations()[conversation]:
            fresh.admit(entry, verified=True)
        return entry_id in fresh.log.covered()

    def sent(self, name: str, message: m.Message, disk: Disk) -> None:
        """Check a sent message: membership only of a blocked conversation (LINK-34)."""
        if not isinstance(message, m.Entries) or not disk.lost:
            return
        if self.is_blocked(message.conversation, disk):
            kinds = {entry.header.kind for entry in message.entries}
            if kinds - {Kind.MEMBER, Kind.JOIN}:
                raise Violation(f"{name} sends {kinds} of a blocked conversation")

    def restored(self, name: str, disk: Disk, held: Conversation) -> None:
        """Check a restart: memory must hold exactly the entries of the disk."""
        stored = [entry.id for entry in disk.conversations()[held.id]]
        if len(stored) != len(set(stored)):
            raise Violation(f"{name} stored an entry twice")
        if set(stored) != held.log.entries.keys() | held.log.pending.keys():
            raise Violation(f"{name} did not admit its stored entries again")
        if held.log.pending and not disk.lost:
            raise Violation(f"{name} has losses that did not happen")
        if held.is_blocked is not self.is_blocked(held.id, disk):
            raise Violation(f"{name} is blocked: {held.is_blocked}")

    def is_blocked(self, conversation: bytes, disk: Disk) -> bool:
        """Say whether a membership entry is lost or follows a lost entry."""
        lacking = {i for i, entry in disk.lost.items() if entry.conversation == conversation}
        if not lacking:
            return False
        todo = [entry for entry in disk.entries if entry.conversation == conversation]
        while behind := [e for e in todo if lacking.intersection(self._books[e.id].named)]:
            lacking.update(entry.id for entry in behind)
            todo = [e for e in todo if e.id not in lacking]
        if EntryId(conversation) in lacking:
            return True
        return any(self._books[i].entry.header.kind in MEMBERSHIP_KINDS for i in lacking)

    def removed(self, name: str, disk: Disk) -> None:
        """Record a rollback, damage or total loss; remaining entries still count as accepted."""
        self._accepted_by[name] = disk.ids()

    # --- at the end -----------------------------------------------------------------

    def check(self, stores: Mapping[str, Disk], deleted: Set[bytes] = frozenset()) -> None:
        """Check that every store is append-only, without duplicates and invented entries."""
        for name, disk in stores.items():
            ids = disk.ids()
            if len(ids) != len(disk.entries):
                raise Violation(f"{name} stored an entry twice")
            for entry in disk.entries:
                self._books.check(name, entry)
            lost = self._accepted_by.get(name, set()) - ids
            if lost:
                raise Violation(f"{name} lost {short(lost)}")
        self._check_acked(stores)

    def _check_acked(self, stores: Mapping[str, Disk]) -> None:
        """Check that every acked entry is in some store, unless all its stores lost it."""
        union = set().union(*(disk.ids() for disk in stores.values()))
        gone = self._acked - union
        lossy = stores["hub"].losses and sum(disk.losses for disk in stores.values()) > 1
        if gone and not lossy:
            raise Violation(f"acked and lost: {short(gone)}")
