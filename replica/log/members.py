"""Roles and cuts, folded from the membership track (spec/03-order §2).

The fold is a pure function of the entries given. Arrival order, clocks and
configuration don't matter, so replicas that hold the same entries compute the
same membership.

Theory. Owners are ranked: those of the genesis in their order, then by depth
of grant. A revocation counts only if its author is strictly senior to the key, or
is the key itself. So the verdict on a key depends on seniors alone, and one pass
in order of rank decides all keys, whatever cycles of revocation juniors write.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace

from replica import limits
from replica.ids import EntryId, PublicKey, Track
from replica.log.body import Genesis, Grant, Member, Revocation, Role
from replica.log.cuts import KeptEntries, KeptIds, Signature
from replica.log.entry import Entry
from replica.log.graph import reach
from replica.log.kinds import Kind, rules_of
from replica.log.meter import Meter

Sets = dict[tuple[PublicKey, Signature], KeptIds]
"""Kept ids, by the key and the furthest entries kept."""
_SETS_SHARED_MAX = 64

Rank = tuple[int, int]
"""(depth of grant, index in the genesis); smaller is senior."""

_ROLES = frozenset(Role)
"""A grant of any other number has no effect."""
_COVERED_ROLES = frozenset({Role.WRITER, Role.OWNER, Role.HOST})
"""Digest and sync cover the entries of keys with one of these (ORD-13)."""


@dataclass(frozen=True, slots=True)
class Membership:
    """The result of the fold."""

    roles: dict[PublicKey, frozenset[Role]] = field(default_factory=dict)
    ranks: dict[PublicKey, Rank] = field(default_factory=dict)
    kept: Mapping[PublicKey, Set[EntryId]] = field(default_factory=dict)
    """Per revoked key, the ids that satisfy all its cuts."""
    resignations: frozenset[EntryId] = frozenset()
    """Revocations of a key by itself that count, inside its cuts or not."""

    def is_member(self, key: PublicKey) -> bool:
        """Say whether `key` may read: it has a role and is not revoked."""
        return bool(self.roles.get(key)) and key not in self.kept

    def is_host(self, key: PublicKey) -> bool:
        """Say whether `key` may answer requests: it has the role HOST and is not revoked."""
        return self.is_member(key) and Role.HOST in self.roles[key]

    def members(self) -> tuple[PublicKey, ...]:
        """Return the keys that `is_member` names; `roles` has those that were removed too."""
        return tuple(filter(self.is_member, self.roles))

    def hosts(self) -> tuple[PublicKey, ...]:
        """Return the keys that `is_host` names."""
        return tuple(filter(self.is_host, self.roles))

    def is_owner(self, key: PublicKey) -> bool:
        """Say whether `key` may act as an owner now: it has the role and is not revoked."""
        return self.has_owner_role(key) and key not in self.kept

    def has_owner_role(self, key: PublicKey) -> bool:
        """Say whether `key` has the role of owner, revoked or not; for what it has written.

        A revocation takes no role: inside its cuts the entries of the key keep their effect.
        The caller looks at the cuts itself.
        """
        return Role.OWNER in self.roles.get(key, ())

    def owner_keys(self) -> frozenset[PublicKey]:
        """Return the keys that `has_owner_role` names."""
        return frozenset(filter(self.has_owner_role, self.roles))

    def may_write(self, key: PublicKey, kind: int, *, critical: bool = False) -> bool:
        """Say whether the roles of `key` allow `kind`."""
        return bool(self.roles.get(key, frozenset()) & rules_of(kind, critical=critical).roles)

    def satisfies_cuts(self, entry: Entry) -> bool:
        """Say whether `entry` lies inside every cut on its author."""
        kept = self.kept.get(entry.header.author)
        return kept is None or entry.id in kept

    def covers(self, entry: Entry) -> bool:
        """Say whether digest and sync cover `entry` by itself (spec/03-order §5).

        An entry of a reader, of a key without a valid grant, or behind a cut is covered
        only as an ancestor of a covered entry.
        """
        if entry.id in self.resignations:
            return True
        return self.covers_author(entry.header.author) and self.satisfies_cuts(entry)

    def covers_author(self, key: PublicKey) -> bool:
        """Say whether the entries of `key` are covered for their own sake.

        A reader's are not: it could write in any number of lanes, and everyone would
        have to compare these for ever.
        """
        return not _COVERED_ROLES.isdisjoint(self.roles.get(key, ()))

    def is_visible(self, entry: Entry) -> bool:
        """Say whether `entry` counts: allowed by its author's roles, inside all cuts."""
        header = entry.header
        may_write = self.may_write(header.author, header.kind, critical=header.critical)
        return may_write and self.satisfies_cuts(entry)

    def counts(self, entry: Entry) -> bool:
        """Say whether a MEMBER entry has effect: it is visible, or a resignation."""
        return entry.id in self.resignations or self.is_visible(entry)

    def may_seal_or_own(self, entry: Entry) -> bool:
        """Say whether `entry` is visible and its author is an owner or a host."""
        roles = self.roles.get(entry.header.author, frozenset())
        return bool(roles & {Role.OWNER, Role.HOST}) and self.is_visible(entry)

    def may_change_with(self, entry: Entry, member: Member) -> bool:
        """Say whether one more MEMBER entry may change this membership.

        Only an owner inside its cuts changes it, or a key that resigns.
        """
        author = entry.header.author
        change = member.change
        if isinstance(change, Revocation) and change.key == author:
            return self.covers_author(author) or (
                author in self.roles and is_plain_resignation(entry, member)
            )
        return self.has_owner_role(author) and self.satisfies_cuts(entry)


@dataclass(slots=True)
class _Fold:
    """Working state of one pass, from the most senior key down."""

    lookup: Callable[[EntryId], Entry | None]
    by_author: dict[PublicKey, list[tuple[Entry, Member]]]
    sets: Sets
    meter: Meter
    roles: dict[PublicKey, set[Role]] = field(default_factory=dict)
    ranks: dict[PublicKey, Rank] = field(default_factory=dict)
    revoked_by: dict[PublicKey, list[tuple[PublicKey, Revocation]]] = field(default_factory=dict)
    granted: dict[PublicKey, int] = field(default_factory=dict)
    kept: dict[PublicKey, KeptIds] = field(default_factory=dict)
    resignations: set[EntryId] = field(default_factory=set)

    def resolve_cuts(self, key: PublicKey) -> None:
        """Compute the ids kept of `key`; those of its seniors are computed already."""
        rank = self.ranks[key]
        kept = KeptEntries(key, self.lookup)
        for author, revocation in self.revoked_by.get(key, ()):
            if self.ranks[author] < rank:
                kept.cut(revocation.cuts)
        for entry, change in self._resignations_of(key, kept):
            self.resignations.add(entry.id)
            kept.cut(change.cuts)
        if kept.is_cut:
            self.kept[key] = self._shared(key, kept)

    def _resignations_of(self, key: PublicKey, kept: KeptEntries) -> list[tuple[Entry, Revocation]]:
        """Return the resignations that count, in order(x); `kept` satisfies the seniors' cuts."""
        found = [
            (entry, member)
            for entry, member in self.by_author.get(key, ())
            if isinstance(member.change, Revocation) and member.change.key == key
        ]
        if found and kept.is_cut:
            # One that a senior cut off does not count: replicas need not hold it.
            inside = kept.ids()
            found = [pair for pair in found if pair[0].id in inside]
        if _COVERED_ROLES.isdisjoint(self.roles[key]):
            # More of a reader's, or one that names its other entries, would make them covered.
            found = [pair for pair in found if is_plain_resignation(*pair)][:1]
        return [(e, m.change) for e, m in found if isinstance(m.change, Revocation)]

    def _shared(self, key: PublicKey, kept: KeptEntries) -> KeptIds:
        """Return the kept ids; folds with the same outcome share one set."""
        name = key, kept.signature
        if name not in self.sets:
            if len(self.sets) >= _SETS_SHARED_MAX:
                del self.sets[next(iter(self.sets))]
            self.sets[name] = self._shortened(key, kept)
        return self.sets[name]

    def _shortened(self, key: PublicKey, kept: KeptEntries) -> KeptIds:
        """Return the kept ids: the last set of the key without what a cut has moved past."""
        for (other, signature), ids in reversed(self.sets.items()):
            if other == key:
                dropped = kept.dropped_since(signature)
                return kept.ids() if dropped is None else ids.without(dropped)
        return kept.ids()

    def apply_changes(self, owner: PublicKey, depth: int) -> list[PublicKey]:
        """Apply the valid changes of an owner whose cuts are resolved; return the new owners."""
        new_owners = []
        kept = self.kept.get(owner)
        for entry, member in self.meter.turns(self.by_author.get(owner, ())):
            change = member.change
            if kept is not None and entry.id not in kept:
                continue
            if isinstance(change, Revocation):
                self.revoked_by.setdefault(change.key, []).append((owner, change))
            elif change.role in _ROLES:
                if change.role == Role.OWNER and Role.OWNER not in self.roles.get(
                    change.key, frozenset()
                ):
                    new_owners.append(change.key)
                self._grant(change, depth)
        return new_owners

    def _grant(self, change: Grant, depth: int) -> None:
        self.roles.setdefault(change.key, set()).add(Role(change.role))
        self.granted[change.key] = min(depth, self.granted.get(change.key, depth))


def is_plain_resignation(entry: Entry, member: Member) -> bool:
    """Say whether a key revokes itself in the form that counts for readers too (ORD-3).

    Such an entry begins its lane, follows the genesis alone, and has neither basis nor cuts.
    """
    header, change = entry.header, member.change
    return (
        isinstance(change, Revocation)
        and change.key == header.author
        and not change.cuts
        and header.seq == 0
        and header.parents == (EntryId(entry.conversation),)
        and header.basis is None
    )


def granted_by(change: Genesis | Member | None) -> tuple[PublicKey, ...]:
    """Return the keys to which a body grants a role, whether the grant counts or not."""
    match change:
        case Genesis(owners):
            return owners
        case Member(Grant(key=key)):
            return (key,)
        case _:
            return ()


def fold(
    genesis: Genesis,
    changes: Iterable[tuple[Entry, Member]],
    lookup: Callable[[EntryId], Entry | None],
    sets: Sets | None = None,
    meter: Meter | None = None,
) -> Membership:
    """Fold the membership track.

    `changes` are the MEMBER entries to consider, in any order. `lookup` returns any
    admitted entry by id; it is used to walk a lane back from a cut. `sets` are the kept
    ids of earlier folds of the same log, and get those of this one. The `meter` is the log's.
    """
    meter = Meter() if meter is None else meter
    by_author: dict[PublicKey, list[tuple[Entry, Member]]] = {}
    for entry, member in meter.turns(meter.sorted(changes, lambda item: item[0].order_key)):
        by_author.setdefault(entry.header.author, []).append((entry, member))
    state = _Fold(lookup, by_author, {} if sets is None else sets, meter)
    for index, owner in enumerate(genesis.owners):
        state.roles[owner] = {Role.OWNER}
        state.ranks[owner] = (0, index)
    level: list[PublicKey] = []
    for owner in genesis.owners:
        state.resolve_cuts(owner)
        level += state.apply_changes(owner, 1)
    depth = 1
    while level:
        for owner in level:
            state.ranks[owner] = (depth, 0)
        for owner in level:
            state.resolve_cuts(owner)
        depth += 1
        level = [new for owner in level for new in state.apply_changes(owner, depth)]
    for key in meter.turns(state.granted):
        if key not in state.ranks:
            state.ranks[key] = (state.granted[key], 0)
            state.resolve_cuts(key)
    roles = {key: frozenset(value) for key, value in meter.turns(state.roles.items())}
    return Membership(roles, state.ranks, state.kept, frozenset(state.resignations))


_GRANTS_COPIED = 64
"""Keys whose roles are copied in the time that looking at an entry takes."""
_FOLDS_CACHED_MAX = 64
"""Number of folds at older heads that a Roster caches."""


class Roster:
    """The MEMBER entries of one log and their folds: of all of them, or at given heads."""

    def __init__(self, entries: Mapping[EntryId, Entry], meter: Meter) -> None:
        """Start empty; headers are read from `entries`, all admitted entries by id."""
        self._entries = entries
        self._meter = meter
        self._genesis: Genesis | None = None
        self._changes: dict[EntryId, Member] = {}
        self._revoked: set[PublicKey] = set()
        """Keys that a revocation names, whether it counts or not."""
        self._revocations: Counter[tuple[PublicKey, PublicKey]] = Counter()
        self._joins: list[EntryId] = []
        self._unfolded: list[tuple[Entry, Member]] = []
        self._now: Membership | None = Membership()
        self._at: dict[tuple[EntryId, ...], Membership] = {}
        self._heads: tuple[EntryId, ...] | None = None
        self._sets: Sets = {}

    def receive(self, entry: Entry, body: Genesis | Member | None) -> None:
        """Add a newly admitted entry of the membership track, or the genesis."""
        if isinstance(body, Genesis):
            self._genesis, self._now = body, None
        elif isinstance(body, Member):
            self._changes[entry.id] = body
            self._unfolded.append((entry, body))
            if isinstance(body.change, Revocation):
                self._revoked.add(body.change.key)
                self._revocations[entry.header.author, body.change.key] += 1
        elif entry.header.kind == Kind.JOIN:
            self._joins.append(entry.id)
        self._heads = None

    def revocations(self, author: PublicKey, key: PublicKey) -> int:
        """Count the revocations of a key that an author wrote, whether they count or not."""
        return self._revocations[author, key]

    @property
    def last(self) -> Membership:
        """The fold at its last use, without the entries that came since."""
        return self._now if self._now is not None else Membership()

    @property
    def now(self) -> Membership:
        """The fold over all MEMBER entries; the same object while it is unchanged."""
        current = self._now
        if current is not None and not self._unfolded:
            return current
        assert not self._meter.is_paused, "a log that pauses is nobody else's to look at"
        # One fold for all new entries: a fold per entry would pass over all of them each time.
        for entry, member in self._unfolded:
            if current is not None and current.may_change_with(entry, member):
                self._meter.turn(1 + len(current.roles) // _GRANTS_COPIED)
                current = self._with_grant(current, entry, member)
        self._unfolded.clear()
        self._now = self._fold(self._changes) if current is None else current
        return self._now

    def _with_grant(self, now: Membership, entry: Entry, member: Member) -> Membership | None:
        """Return the membership with one grant more; None where a full fold is needed."""
        change = member.change
        if (
            not isinstance(change, Grant)
            or change.role == Role.OWNER
            or change.key in self._revoked
        ):
            return None
        if change.role not in _ROLES:
            return now
        held = now.roles.get(change.key, frozenset())
        roles = now.roles | {change.key: held | {Role(change.role)}}
        if Role.OWNER in held:
            return replace(now, roles=roles)
        depth, _ = now.ranks[entry.header.author]
        rank = min((depth + 1, 0), now.ranks.get(change.key, (depth + 1, 0)))
        return replace(now, roles=roles, ranks=now.ranks | {change.key: rank})

    def at(self, heads: tuple[EntryId, ...]) -> Membership:
        """Fold the entries that `heads` reach on the track through parents and prev, inclusive."""
        known = self._at.get(heads)
        if known is None:
            reached = self._reached(heads)
            known = self._fold(i for i in self._changes if i in reached)
            if len(self._at) == _FOLDS_CACHED_MAX:
                del self._at[next(iter(self._at))]
            self._at[heads] = known
        return known

    def heads(self) -> tuple[EntryId, ...]:
        """Return the MEMBER entries that count and that no other of them reaches, in order(x).

        If there are more than 64, those that a JOIN of an owner or host gathers are
        replaced by that JOIN. A reader's entries are never among them.
        """
        if self._heads is None:
            now, entries = self.now, self._entries
            counting = [i for i in self._changes if now.counts(entries[i])]
            followed = (i for entry_id in counting for i in self._followed(entry_id))
            tops = set(counting) - self._reached(followed)
            if len(tops) > limits.MEMBERSHIP_HEADS_MAX:
                tops = self._gathered(tops)
            self._heads = tuple(sorted(tops, key=lambda i: entries[i].order_key))
        return self._heads

    def heads_to_join(self) -> tuple[EntryId, ...]:
        """Return the heads that a host gathers with a JOIN before it seals.

        Empty for up to 64 heads. The host calls this again after each JOIN.
        """
        heads = self.heads()
        surplus = len(heads) - limits.MEMBERSHIP_HEADS_MAX
        return tuple(sorted(heads[: min(surplus + 1, limits.PARENTS_MAX)])) if surplus > 0 else ()

    def _gathered(self, tops: set[EntryId]) -> set[EntryId]:
        left, gathering = set(tops), set()
        joins = (self._entries[i] for i in self._joins)
        # The latest first: it may gather earlier ones.
        for join in sorted(joins, key=lambda e: e.order_key, reverse=True):
            if not self.now.may_seal_or_own(join):
                continue
            reached = self._reached([join.id]) & left
            if len(reached) > 1:
                gathering.add(join.id)
                left -= reached
        return left | gathering

    def _reached(self, start: Iterable[EntryId]) -> set[EntryId]:
        return reach(start, self._followed, meter=self._meter)

    def _followed(self, entry_id: EntryId) -> tuple[EntryId, ...]:
        """Return the ids that an entry of the membership track directly follows there."""
        header = self._entries[entry_id].header
        if header.track != Track.MEMBERSHIP:
            return ()
        return header.parents if header.prev is None else (header.prev, *header.parents)

    def _fold(self, ids: Iterable[EntryId]) -> Membership:
        if self._genesis is None:
            return Membership()
        changes = [(self._entries[i], self._changes[i]) for i in ids]
        self._meter.count(len(changes))
        return fold(self._genesis, changes, self._lookup, self._sets, self._meter)

    def _lookup(self, entry_id: EntryId) -> Entry | None:
        self._meter.turn()
        return self._entries.get(entry_id)
