"""The log of one conversation: every admitted entry, and the state folded from them.

Pure. Admission is in admission.py (spec/02-entry §6), positions in lanes.py,
membership in members.py, cover in cover.py (spec/03-order §2, §5). The log
keeps them consistent.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from replica import limits
from replica.ids import ConversationId, Digest, EntryId, Lane, Position, PublicKey, Track
from replica.log.admission import Admission, Duplicate, Verdict
from replica.log.bodies import Bodies
from replica.log.body import Genesis, Member
from replica.log.checks import filled
from replica.log.checksums import Checksums
from replica.log.codec import fields_of
from replica.log.cover import Cover
from replica.log.entry import Entry, send_order
from replica.log.heads import Heads
from replica.log.kinds import Kind, is_known
from replica.log.lanes import Lanes
from replica.log.members import Membership, Roster, granted_by
from replica.log.meter import Meter
from replica.refusals import BodyMalformed, ConversationMismatch

_COUNTED_BYTES = 2_048
"""Bodies up to these have few fields."""


class Log:
    """Every admitted entry of one conversation."""

    def __init__(self, conversation: ConversationId) -> None:
        """Start empty; the first entry admitted is the genesis."""
        self.conversation = conversation
        self.genesis: Entry | None = None
        """The genesis entry, once admitted."""
        self.entries: dict[EntryId, Entry] = {}
        self.size_bytes = 0
        """Bytes of all entries."""
        self.checksums = Checksums()
        self.meter = Meter()
        """The work so far, beyond the admission of each entry."""
        self.seals: Counter[tuple[EntryId, PublicKey]] = Counter()
        """Number of seals by their first parent and their author."""
        self.roster = Roster(self.entries, self.meter)
        """The membership, now or at given heads."""
        self.admission = Admission(EntryId(conversation), self.entries, self.meter)
        self.pending: Mapping[EntryId, Entry] = self.admission.pending
        """The pending entries by id: they lack other entries, or a grant to their author."""
        self.unknown_critical: list[EntryId] = []
        """Entries of a critical kind unknown here, visible or void."""
        self._children: dict[EntryId, list[EntryId]] = {}
        self._bodies = Bodies(self.entries)
        self.body = self._bodies.body
        """Read the body of an admitted entry; None where missing, unknown or void."""
        self.is_malformed = self._bodies.is_malformed
        """Say whether a present body of a known kind does not parse."""
        self.named = self._bodies.named
        """Return the ids an admitted entry names: prev, parents, basis, and ids its body lists."""
        self._lanes = Lanes(self.entries)
        self.lane_count = self._lanes.__len__
        """Return the number of lanes."""
        self.lanes_of = self._lanes.of
        """Return the lanes of one author."""
        self.lane_last_tips = self._lanes.last_tips
        """Return at most so many last entries of a lane, the latest ones where it has more."""
        self.lane_fork = self._lanes.fork
        """Return the first seq at which a lane holds several entries, None if it is not forked."""
        self.lane_walk = self._lanes.walk
        """Return the ids of a lane from one seq on, in (lamport, id) order, read as asked for."""
        self.lane_rest = self._lanes.rest
        """Return the first entry of a lane from one seq on, and what is behind it, unread."""
        self.lane_walk_behind = self._lanes.walk_behind
        """Return the ids behind such an entry, up to an end."""
        self.written: Mapping[PublicKey, int] = self._lanes.written
        """The number of admitted entries per author, 0 for any other key."""
        self.cover = Cover(self.entries, self.named, self.meter)
        """The covered entries, and their changes."""
        self.bodyless: dict[EntryId, None] = {}
        """The admitted entries without their bodies, in order of arrival."""
        self._heads = Heads(self.entries, self.cover.follow(), self.meter)

    def __len__(self) -> int:
        """Count admitted entries."""
        return len(self.entries)

    # --- admission -------------------------------------------------------

    def admit(self, entry: Entry, *, verified: bool = False) -> Verdict:
        """Admit or hold back one entry (spec/02-entry §6). Raises EntryRefused.

        `verified` skips the signature, for entries that this store admitted before.
        The caller persists the `unstored` entries of an Admitted, and the `filled`
        entry of a Duplicate, before it acks them.
        """
        if entry.conversation != self.conversation:
            raise ConversationMismatch
        known = self.entries.get(entry.id)
        if known is None:
            try:
                verdict = self.admission.admit(entry, self._insert, verified=verified)
            except BodyMalformed:
                self.meter.count(_fields_of(entry, self.meter))
                raise
            if not verified and entry.id in self.entries:
                self.meter.count(_fields_of(entry, self.meter))
            return verdict
        whole = filled(known, entry)
        if whole is not None:
            self.entries[known.id] = whole
            self.size_bytes += whole.size_bytes - known.size_bytes
            self._bodies.forget(known.id)
            self.bodyless.pop(known.id, None)
        return Duplicate(whole)

    def _insert(self, entry: Entry) -> tuple[PublicKey, ...]:
        header = entry.header
        self.entries[entry.id] = entry
        self.size_bytes += entry.size_bytes
        self.checksums.add(entry)
        if entry.body is None:
            self.bodyless[entry.id] = None
        if header.kind == Kind.SEAL:
            self.seals[header.parents[0], header.author] += 1
        for parent in header.parents:
            self._children.setdefault(parent, []).append(entry.id)
        self._lanes.receive(entry)
        if header.critical and not is_known(header.kind):
            self.unknown_critical.append(entry.id)
        self.cover.receive(entry)
        if header.track == Track.ALL:
            self.genesis = entry
        elif header.track != Track.MEMBERSHIP:
            return ()
        body = self.body(entry.id)
        change = body if isinstance(body, (Genesis, Member)) else None
        self.roster.receive(entry, change)
        return granted_by(change)

    # --- reading ---------------------------------------------------------

    def children(self, entry_id: EntryId) -> Sequence[EntryId]:
        """Return the entries that have this one among their parents."""
        return self._children.get(entry_id, ())

    def in_send_order(self, ids: Iterable[EntryId]) -> list[Entry]:
        """Return the entries in send order."""
        return sorted((self.entries[i] for i in ids), key=send_order)

    # --- lanes -----------------------------------------------------------

    def at(self, lane: Lane, seq: int) -> tuple[EntryId, ...]:
        """Return the ids at one seq of a lane: none, one, or more where the lane is forked."""
        return self._lanes.at(lane, seq)

    def lane_length(self, lane: Lane) -> int:
        """Return 1 + the greatest seq of the lane, 0 for an unknown lane."""
        return self._lanes.length(lane)

    def lane_tips(self, lane: Lane) -> tuple[EntryId, ...]:
        """Return the last entries of a lane; several where it is forked."""
        return self._lanes.tips(lane)

    def lanes(self) -> Iterator[Lane]:
        """Iterate over all lanes."""
        return iter(self._lanes)

    def equivocations(self) -> list[tuple[Lane, int, tuple[EntryId, ...]]]:
        """Return each forked lane, its first forked seq and the ids there, as portable proof."""
        return list(self._lanes.forks())

    # --- membership, coverage, digest ------------------------------------

    @property
    def membership(self) -> Membership:
        """The fold over all admitted MEMBER entries."""
        return self.roster.now

    def membership_heads(self) -> tuple[EntryId, ...]:
        """Return the heads of the membership, ascending: the latest 64, if there are more."""
        return tuple(sorted(self.roster.heads()[-limits.MEMBERSHIP_HEADS_MAX :]))

    def covered(self) -> Set[EntryId]:
        """Return the ids that digest and sync cover (spec/03-order §5).

        They are the entries of writers, owners and hosts inside all cuts, the
        resignations that count, and all ancestors of these.
        """
        if self.meter.is_paused:
            return self.cover.covered  # as far as it is judged
        covered = self.cover.ids(self.roster.now)
        self._heads.follow()
        return covered

    def offered(self, ids: Sequence[EntryId]) -> list[EntryId]:
        """Return the entries to offer to peers once `ids` are new: the covered ones.

        An uncovered entry is offered to nobody until a covered entry follows it, right
        before which it comes, or until its author is granted a role, right after the grant.
        """
        return self.cover.offered(self.membership, ids)

    def heads(self) -> tuple[Position, ...]:
        """Return the covered heads of all lanes, sorted; a forked lane has several."""
        self.covered()
        return self._heads.sorted()

    @property
    def digest(self) -> Digest:
        """SHA-256 over the sorted lane heads: equal digests mean equal logs."""
        self.covered()
        return self._heads.digest()


def _fields_of(entry: Entry, meter: Meter) -> int:
    """Return the fields of a body that came; 0 for a short one."""
    is_long = entry.body is not None and len(entry.body) > _COUNTED_BYTES
    return fields_of(entry.header.kind, entry.body or b"", meter.turn) if is_long else 0
