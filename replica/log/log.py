"""The log of one conversation: admission, pending, lanes, heads, digest (spec/02-entry, 03-order).

Pure. Whether an entry is admitted depends only on the entry and its
ancestors, never on arrival order, configuration or clocks; what came too
early waits in `pending` and costs whoever delivered it.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from replica import limits
from replica.errors import EntryRefused
from replica.ids import (
    DIGEST_TAG,
    ConversationId,
    Digest,
    EntryId,
    Lane,
    Position,
    PublicKey,
    Track,
    tagged_sha256,
)
from replica.log.body import Body, Genesis, Grant, Member, listed_ids
from replica.log.codec import decode_body
from replica.log.cover import Covering
from replica.log.entry import Entry, Header, verify_body, verify_signature
from replica.log.kinds import CONTROL_KINDS, Kind, is_known
from replica.log.lanes import Lanes
from replica.log.members import Membership, Roster
from replica.log.waiting import Waiting
from replica.refusals import (
    BasisInvalid,
    BodyMalformed,
    BodyMissing,
    ConversationMismatch,
    GenesisInvalid,
    LamportInvalid,
    ParentInvalid,
    PrevInvalid,
    SeqGap,
)


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
class _Admission:
    """What one call of admit changes."""

    entries: list[Entry] = field(default_factory=list)
    refused: list[tuple[Entry, EntryRefused]] = field(default_factory=list)
    ready: deque[EntryId] = field(default_factory=deque)
    """Waiting entries whose names are all complete by now."""
    vouched: deque[EntryId] = field(default_factory=deque)
    """Complete entries of granted authors: admitted with all they follow."""


def send_order(entry: Entry) -> tuple[bool, int, EntryId]:
    """Return the key of the order on the wire: membership first, then (lamport, id).

    It is topological, but for a revocation, which waits for what its cuts
    name; and a grant comes before what the granted key wrote. So an honest
    stream never fills the receiver's pending buffer.
    """
    return (entry.header.track not in (Track.ALL, Track.MEMBERSHIP), *entry.order_key)


class Log:
    """Every admitted entry of one conversation."""

    def __init__(self, conversation: ConversationId) -> None:
        """Start empty; the first entry admitted is the genesis."""
        self.conversation = conversation
        self.entries: dict[EntryId, Entry] = {}
        self._children: dict[EntryId, list[EntryId]] = {}
        self._bodies: dict[EntryId, Body | None] = {}
        self._lanes = Lanes()
        self._granted: set[PublicKey] = set()
        self._waiting = Waiting()
        self._roster = Roster(self.entries)
        self._covering = Covering(self.entries, self.named)
        self._critical_unknown: list[EntryId] = []
        self._heads: tuple[Position, ...] | None = None
        self._digest: Digest | None = None

    def __len__(self) -> int:
        """Count admitted entries."""
        return len(self.entries)

    @property
    def genesis(self) -> Entry | None:
        """The genesis entry, once admitted."""
        return self.entries.get(EntryId(self.conversation))

    # --- admission -------------------------------------------------------

    def admit(self, entry: Entry, *, verified: bool = False) -> Verdict:
        """Admit, hold back or refuse one entry (spec/02-entry §6).

        `verified` leaves out the signature, for entries this store admitted
        before. The caller persists what is `unstored` of an Admitted, and a filled
        Duplicate, before it lets anyone know. Raises EntryRefused.
        """
        if entry.conversation != self.conversation:
            raise ConversationMismatch
        known = self.entries.get(entry.id) or self.pending.get(entry.id)
        if known is not None:
            return self._admit_again(known, entry)
        missing = self._check(entry, verified=verified)
        admission = _Admission()
        if self._waiting.hold(entry, missing):
            try:
                self._complete(entry, admission)
            except EntryRefused:
                self._waiting.release(entry.id)
                raise
        self._settle(admission)
        refused = tuple(admission.refused)
        if not admission.entries:
            return Pending(missing, refused)
        return Admitted(tuple(admission.entries), refused)

    def _complete(self, entry: Entry, admission: _Admission) -> None:
        """Check the place of an entry, all of whose names are known; raise EntryRefused."""
        self._check_place(entry)
        admission.ready += self._waiting.complete(entry.id)
        if self._may_speak(entry):
            admission.vouched.append(entry.id)

    def _settle(self, admission: _Admission) -> None:
        """Admit what the change sets free, and what that sets free."""
        while admission.vouched or admission.ready:
            if admission.vouched:
                self._take(admission.vouched.popleft(), admission)
                continue
            waiting = self.pending[admission.ready.popleft()]
            try:
                self._complete(waiting, admission)
            except EntryRefused as error:
                admission.refused.append((waiting, error))
                self._waiting.release(waiting.id)

    def _take(self, vouched: EntryId, admission: _Admission) -> None:
        # What lacks only grants is admitted where an entry of a granted author
        # follows it: else a grant that a later cut made void, and that nobody
        # need hold, would be needed to sync honest entries.
        for entry in self._waiting.lineage(vouched):
            self._waiting.admit(entry.id)
            self._insert(entry)
            admission.entries.append(entry)
            admission.vouched += self._waiting.by(self._granted_by(entry))

    def _admit_again(self, known: Entry, entry: Entry) -> Duplicate:
        # The body may come later; header and signature never change.
        if known.body is not None or entry.body is None:
            return Duplicate()
        filled = replace(known, body=entry.body)
        verify_body(filled)
        if known.id in self.pending:
            self._waiting.fill(filled)
            return Duplicate()
        self.entries[known.id] = filled
        self._bodies.pop(known.id, None)
        return Duplicate(filled)

    def _check(self, entry: Entry, *, verified: bool) -> tuple[EntryId, ...]:
        """Check everything but place and grant; return the ids that are missing.

        The signature is verified even for what must wait, so nobody fills the
        buffer in another's name.
        """
        if not verified:
            verify_signature(entry)
            verify_body(entry)
        body = self._control_body(entry)
        if entry.header.kind == Kind.GENESIS:
            self._check_genesis(entry, body)
            return ()
        named = (*entry.header.ancestors(), *listed_ids(body), EntryId(self.conversation))
        return tuple(dict.fromkeys(i for i in named if i not in self.entries))

    def _control_body(self, entry: Entry) -> Body | None:
        if entry.header.kind not in CONTROL_KINDS:
            return None
        if entry.body is None:
            raise BodyMissing
        return decode_body(entry.header.kind, entry.body)

    def _check_genesis(self, entry: Entry, body: Body | None) -> None:
        assert isinstance(body, Genesis), "a genesis is a control entry"
        if body.owners[0] != entry.header.author:
            raise GenesisInvalid("the author of the genesis is its first owner")

    def _check_place(self, entry: Entry) -> None:
        header = entry.header
        if header.kind == Kind.GENESIS:
            return
        for parent in map(self._header, header.parents):
            if parent.track not in (header.track, Track.ALL):
                raise ParentInvalid(f"a parent is on track {parent.track}")
        if header.prev is not None:
            prev = self._header(header.prev)
            if prev.lane != header.lane:
                raise PrevInvalid
            if prev.seq != header.seq - 1:
                raise SeqGap(f"seq {header.seq} follows seq {prev.seq}")
        if header.basis is not None:
            basis = self._header(header.basis)
            if basis.kind != Kind.SEAL or header.track != Track.CONVERSATION:
                raise BasisInvalid
        named = (*header.ancestors(), *listed_ids(self._control_body(entry)))
        lamport = 1 + max(self._header(i).lamport for i in named)
        if header.lamport != lamport:
            raise LamportInvalid(f"lamport is {header.lamport}, must be {lamport}")

    def _header(self, entry_id: EntryId) -> Header:
        entry = self.entries.get(entry_id) or self.pending[entry_id]
        return entry.header

    def _may_speak(self, entry: Entry) -> bool:
        return entry.header.kind == Kind.GENESIS or entry.header.author in self._granted

    def _insert(self, entry: Entry) -> None:
        header = entry.header
        self.entries[entry.id] = entry
        for parent in header.parents:
            self._children.setdefault(parent, []).append(entry.id)
        self._lanes.receive(entry)
        if header.critical and not is_known(header.kind):
            self._critical_unknown.append(entry.id)
        self._covering.receive(entry)
        if header.track in (Track.ALL, Track.MEMBERSHIP):
            body = self.body(entry.id)
            self._roster.receive(entry, body if isinstance(body, (Genesis, Member)) else None)
            self._granted.update(self._granted_by(entry))
        self._heads = self._digest = None

    # --- pending ---------------------------------------------------------

    @property
    def pending(self) -> Mapping[EntryId, Entry]:
        """The entries that wait, for others or for a grant to their author."""
        return self._waiting.entries

    @property
    def pending_bytes(self) -> int:
        """Bytes held for waiting entries."""
        return self._waiting.size_bytes

    def lacking(self, entry_id: EntryId) -> list[EntryId]:
        """Return what a waiting entry waits for that did not come yet, ascending."""
        return self._waiting.lacking(entry_id, self.entries)

    def _granted_by(self, entry: Entry) -> tuple[PublicKey, ...]:
        match self._bodies.get(entry.id):
            case Genesis(owners):
                return owners
            case Member(Grant(key=key)):
                return (key,)
            case _:
                return ()

    def absent(self) -> set[EntryId]:
        """Return what waiting entries name and that is not here at all."""
        here = (self.entries, self.pending)
        return {i for i in self._waiting.names() if not any(i in known for known in here)}

    def drop_pending(self, entry_ids: Iterable[EntryId]) -> None:
        """Forget waiting entries; whoever holds them sends them again."""
        for entry_id in tuple(entry_ids):
            self._waiting.release(entry_id)

    # --- reading ---------------------------------------------------------

    def body(self, entry_id: EntryId) -> Body | None:
        """Read the body of an admitted entry; None where missing, unknown or void."""
        if entry_id not in self._bodies:
            entry = self.entries[entry_id]
            try:
                parsed = decode_body(entry.header.kind, entry.body) if entry.body else None
            except BodyMalformed:
                parsed = None  # void: `is_malformed` tells it from missing
            self._bodies[entry_id] = parsed
        return self._bodies[entry_id]

    def is_malformed(self, entry_id: EntryId) -> bool:
        """Say whether a present body of a known kind does not parse."""
        entry = self.entries[entry_id]
        if not is_known(entry.header.kind):
            return False
        return entry.body is not None and self.body(entry_id) is None

    def is_withholdable(self, entry: Entry) -> bool:
        """Say whether the entry may travel without its body."""
        return entry.header.kind not in CONTROL_KINDS

    @property
    def critical_unknown(self) -> bool:
        """Say whether a visible entry is of a critical kind unknown here: write no more."""
        return any(self.membership.is_visible(self.entries[i]) for i in self._critical_unknown)

    def children(self, entry_id: EntryId) -> Sequence[EntryId]:
        """Return the entries that have this one among their parents."""
        return self._children.get(entry_id, ())

    def at(self, lane: Lane, seq: int) -> tuple[EntryId, ...]:
        """Return the ids at one position: none, one, or more where the lane is forked."""
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
        """Return the first forked position of each forked lane, as portable proof."""
        return self._lanes.equivocations()

    @property
    def membership(self) -> Membership:
        """The fold over all admitted MEMBER entries."""
        return self._roster.now

    def membership_at(self, heads: tuple[EntryId, ...]) -> Membership:
        """Fold what `heads` reach on the membership track (`M` in spec/03-order §3)."""
        return self._roster.at(heads)

    def membership_heads(self) -> tuple[EntryId, ...]:
        """Return the heads of the membership, ascending: the latest 64, if there are more."""
        return tuple(sorted(self._roster.heads()[-limits.MEMBERSHIP_HEADS_MAX :]))

    def membership_heads_to_join(self) -> tuple[EntryId, ...]:
        """Return what a host gathers with a JOIN before it seals: none up to 64 heads.

        It asks again after each JOIN.
        """
        heads = self._roster.heads()
        surplus = len(heads) - limits.MEMBERSHIP_HEADS_MAX
        return tuple(sorted(heads[: min(surplus + 1, limits.PARENTS_MAX)])) if surplus > 0 else ()

    # --- heads and digest ------------------------------------------------

    def named(self, entry_id: EntryId) -> tuple[EntryId, ...]:
        """Return the ids an admitted entry names: prev, parents, basis, listed."""
        header = self.entries[entry_id].header
        if header.kind not in CONTROL_KINDS:
            return header.ancestors()
        return (*header.ancestors(), *listed_ids(self.body(entry_id)))

    def covered(self) -> Set[EntryId]:
        """Return the ids digest and sync cover (spec/03-order §5).

        What valid members wrote inside all cuts, and all it names.
        """
        return self._covering.ids(self.membership)

    def offered(self, ids: Iterable[EntryId]) -> list[EntryId]:
        """Return which of these new entries go to peers, with what they brought into cover.

        What lies behind a cut goes to nobody until something covered follows it.
        """
        return self._covering.offered(self.membership, ids)

    def heads(self) -> tuple[Position, ...]:
        """Return the covered heads of all lanes, sorted; a forked lane has several."""
        if self._heads is None:
            covered = self.covered()
            if len(covered) == len(self.entries):
                tips: Iterable[EntryId] = self._lanes.all_tips()
            else:
                followed = {self.entries[i].header.prev for i in covered}
                tips = (i for i in covered if i not in followed)
            self._heads = tuple(sorted(self.position(i) for i in tips))
        return self._heads

    def position(self, entry_id: EntryId) -> Position:
        """Return where an admitted entry stands."""
        header = self.entries[entry_id].header
        return Position(header.lane, header.seq, entry_id)

    @property
    def digest(self) -> Digest:
        """SHA-256 over the sorted lane heads: equal digests mean equal logs."""
        if self._digest is None:
            self._digest = digest_of(self.heads())
        return self._digest

    def in_send_order(self, ids: Iterable[EntryId]) -> list[Entry]:
        """Return the entries in the order they go on the wire."""
        return sorted((self.entries[i] for i in ids), key=send_order)


def digest_of(heads: Iterable[Position]) -> Digest:
    """Hash sorted lane heads: author, epoch, track, seq, id, fixed width."""
    parts = [
        head.lane.author
        + head.lane.epoch.to_bytes(8, "little")
        + head.lane.track.to_bytes(1, "little")
        + head.seq.to_bytes(8, "little")
        + head.id
        for head in heads
    ]
    return tagged_sha256(DIGEST_TAG, b"".join(parts))
