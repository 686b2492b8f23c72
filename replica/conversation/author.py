"""The author of entries: next position in a lane, header, signature (spec/02-entry §7).

Pure: randomness and time are arguments. An author writes in one epoch. The driver
begins a new one unless a peer has confirmed the lane's head since the store was
opened. Otherwise a restored backup would write a second history of the same lane.
"""

from collections.abc import Container
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from replica.conversation.conversation import Conversation
from replica.conversation.removal import is_readers_leaving, removal_of
from replica.errors import RequestRefused
from replica.ids import EntryId, Lane, PublicKey, Track
from replica.limits import BODY_BYTES_MAX, PARENTS_MAX, SEAL_ENTRIES_MAX
from replica.log import (
    Body,
    Cancel,
    Conflict,
    Entry,
    Generation,
    Genesis,
    Header,
    Kind,
    Log,
    Member,
    Request,
    Revocation,
    Seal,
    body_digest,
    codec,
    entry_id,
    is_plain_resignation,
    kind_of,
    listed_ids,
    public_key,
    rules_of,
    salted,
    sign,
)
from replica.order import with_withdrawals
from replica.refusals import BodyTooLarge, CriticalKindUnknown, NotAllowed


class ClockInvalid(RequestRefused):
    """The clock of this machine is set before 1970, a time that no entry can name."""

    reason = "CLOCK_INVALID"
    next_step = "Set the clock of this machine, and make the call again; nothing was written."


@dataclass(frozen=True, slots=True)
class Author:
    """A key in one epoch."""

    key: Ed25519PrivateKey
    epoch: int
    public: PublicKey = field(init=False)
    """The author's public key."""

    def __post_init__(self) -> None:
        """Derive the public key, which each header names."""
        object.__setattr__(self, "public", public_key(self.key))

    def lane(self, track: int) -> Lane:
        """Return the lane this author writes on `track`."""
        return Lane(self.public, self.epoch, track)

    def genesis(self, body: Genesis, *, salt: bytes, time_ms: int) -> Entry:
        """Return the genesis of a new conversation. Raises ClockInvalid."""
        content = salted(salt, codec.encode_body(body))
        header = Header(
            None, self.public, self.epoch, Track.ALL, 0, None, (), None, 0,
            Kind.GENESIS, False, body_digest(content), len(content), time_ms, Conflict.QUEUE,
        )  # fmt: skip
        return self._signed(header, content)

    def write(
        self,
        held: Conversation,
        body: Body,
        *,
        parents: tuple[EntryId, ...],
        basis: EntryId | None = None,
        conflict: Conflict = Conflict.QUEUE,
        salt: bytes,
        time_ms: int,
    ) -> Entry:
        """Write the next entry of this author's lane; the caller admits and persists it.

        `parents` may be in any order; more than 64 must be joined first. A request follows the
        CANCELs of withdrawn messages too (ORD-10), as far as there is room. A reader leaves
        by `Revocation(its key)` in a new epoch, with the genesis as only parent.
        Raises NotAllowed, ClockInvalid, and the errors of `content`.
        """
        assert len(parents) <= PARENTS_MAX, "join surplus heads first"
        if isinstance(body, Request):
            node = held.order.nodes.get(basis) if basis is not None else None
            parents = with_withdrawals(held.order, parents, node)[:PARENTS_MAX]
        content, kind = self.content(held, body, salt), kind_of(body)
        track = rules_of(kind).track or _track_of(held, parents)
        seq, prev = held.next_position(self.lane(track))
        if not self.may_name(held, (*parents, *([basis] if basis else ()), *listed_ids(body))):
            raise NotAllowed("no entry names one of a reader, or one behind a cut")
        named = [i for i in (prev, *parents, basis, *listed_ids(body)) if i is not None]
        lamport = 1 + max(held.log.entries[i].header.lamport for i in named)
        header = Header(
            held.id, self.public, self.epoch, track, seq, prev, tuple(sorted(set(parents))),
            basis, lamport, kind, False, body_digest(content), len(content), time_ms, conflict,
        )  # fmt: skip
        entry = self._signed(header, content)
        if isinstance(body, Member) and not self._may_resign(held, entry, body):
            raise NotAllowed("a reader leaves by the first entry of a lane, behind the genesis")
        return entry

    def content(self, held: Conversation, body: Body, salt: bytes) -> bytes:
        """Return the bytes of a body that this author may write now.

        Raises ConversationDamaged, KeyRemoved, NotAllowed, CriticalKindUnknown, BodyTooLarge,
        BodyMalformed.
        """
        held.require_whole()
        kind = kind_of(body)
        if not self.may_write(held, body):
            # Other replicas would carry the entry as void.
            raise removal_of(held, self.public) or NotAllowed(
                f"your role in this conversation allows no {kind.name} entry"
            )
        # Membership stays writable, so that the author of the entry can be revoked.
        if not isinstance(body, Member) and _is_stopped(held.log):
            raise CriticalKindUnknown
        if isinstance(body, Seal) and len(body.entries) > SEAL_ENTRIES_MAX:
            # No other replica would admit it, nor the entries that follow it on this lane.
            raise BodyTooLarge(f"the seal would list {len(body.entries)} entries")
        content = salted(salt, codec.encode_body(body))
        if len(content) > BODY_BYTES_MAX:
            raise BodyTooLarge(f"the body would have {len(content)} bytes")
        codec.decode_body(kind, content)  # nobody reads a body that does not parse
        return content

    def _may_resign(self, held: Conversation, entry: Entry, body: Member) -> bool:
        if held.log.membership.may_write(self.public, Kind.MEMBER):
            return True
        return held.log.membership.covers_author(self.public) or is_plain_resignation(entry, body)

    def needs_new_epoch(
        self,
        held: Conversation,
        body: Body,
        parents: tuple[EntryId, ...] = (),
        refused: Container[EntryId] = (),
    ) -> bool:
        """Say whether `body` begins a lane, and this epoch's is begun.

        A reader's leaving does, and what ends a request behind one that the hub `refused`: the
        hub has room for it (LIM-16), and would wait for what comes before it in the lane.
        """
        if is_readers_leaving(held, self.public, body):
            return held.next_position(self.lane(Track.MEMBERSHIP))[0] > 0
        if not isinstance(body, Cancel | Seal | Generation):
            return False
        _, last = held.next_position(self.lane(Track.CONVERSATION))
        return last in refused and not any(one in refused for one in parents)

    def may_write(self, held: Conversation, body: Body) -> bool:
        """Say whether this key's roles allow such an entry now."""
        match body:
            case Member(Revocation(key)) if key == self.public:
                return True  # anyone may leave
            case _:
                membership = held.log.membership
                is_cut = self.public in membership.kept  # all it writes now is void
                return not is_cut and membership.may_write(self.public, kind_of(body))

    def may_name(self, held: Conversation, named: tuple[EntryId, ...]) -> bool:
        """Say whether an entry may name these as parents, basis or in its body (ORD-16)."""
        # An uncovered one would be covered from then on, and everyone would have to hold it.
        covered = held.log.covered()
        return all(i in covered for i in named)

    def _signed(self, header: Header, content: bytes) -> Entry:
        if header.create_time_ms < 0:
            raise ClockInvalid
        data = codec.encode_header(header)
        return Entry(data, sign(data, self.key), content, entry_id(data), header)


def _is_stopped(log: Log) -> bool:
    """Say whether a visible entry is of a critical kind unknown here (ENT-15)."""
    return any(log.membership.is_visible(log.entries[i]) for i in log.unknown_critical)


def _track_of(held: Conversation, parents: tuple[EntryId, ...]) -> int:
    """Return the track of a JOIN of `parents`."""
    tracks = (held.log.entries[i].header.track for i in parents)
    return next((track for track in tracks if track != Track.ALL), Track.CONVERSATION)
