"""Roles and cuts, folded from the membership track (spec/03-order §2).

The fold is a pure function of the entries given. Arrival order, clocks and
configuration don't matter, so replicas that hold the same entries compute the
same membership.

Theory. Owners are ranked: those of the genesis in their order, then by depth
of grant. A revocation counts only if its author is strictly senior to the key, or
is the key itself. So the verdict on a key depends on seniors alone, and one pass
in order of rank decides all keys, whatever cycles of revocation juniors write.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from replica import limits
from replica.ids import EntryId, PublicKey, Track
from replica.log.body import Cut, Genesis, Grant, Member, Revocation, Role
from replica.log.entry import Entry
from replica.log.graph import reach
from replica.log.kinds import Kind, rules_of

Rank = tuple[int, int]
"""(depth of grant, index in the genesis); smaller is senior."""

_ROLES = frozenset(Role)
"""A grant of any other number has no effect."""


@dataclass(frozen=True, slots=True)
class Membership:
    """The result of the fold."""

    roles: dict[PublicKey, frozenset[Role]] = field(default_factory=dict)
    ranks: dict[PublicKey, Rank] = field(default_factory=dict)
    kept: dict[PublicKey, frozenset[EntryId]] = field(default_factory=dict)
    """Per revoked key, the ids that satisfy all its cuts."""
    resignations: frozenset[EntryId] = frozenset()
    """Revocations of a key by itself that count, inside its cuts or not."""

    def is_member(self, key: PublicKey) -> bool:
        """Say whether `key` may read: it has a role and is not revoked."""
        return bool(self.roles.get(key)) and key not in self.kept

    def may_write(self, key: PublicKey, kind: int, *, critical: bool = False) -> bool:
        """Say whether the roles of `key` allow `kind`."""
        return bool(self.roles.get(key, frozenset()) & rules_of(kind, critical=critical).roles)

    def satisfies_cuts(self, entry: Entry) -> bool:
        """Say whether `entry` lies inside every cut on its author."""
        kept = self.kept.get(entry.header.author)
        return kept is None or entry.id in kept

    def covers(self, entry: Entry) -> bool:
        """Say whether digest and sync cover `entry` by itself (spec/03-order §5).

        An entry of a key without a valid grant, or behind a cut, is covered only as
        an ancestor of a covered entry.
        """
        if entry.id in self.resignations:
            return True
        return bool(self.roles.get(entry.header.author)) and self.satisfies_cuts(entry)

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
            return author in self.roles
        return Role.OWNER in self.roles.get(author, ()) and self.satisfies_cuts(entry)


@dataclass(slots=True)
class _Fold:
    """Working state of one pass, from the most senior key down."""

    lookup: Callable[[EntryId], Entry | None]
    by_author: dict[PublicKey, list[tuple[Entry, Member]]]
    roles: dict[PublicKey, set[Role]] = field(default_factory=dict)
    ranks: dict[PublicKey, Rank] = field(default_factory=dict)
    revoked_by: dict[PublicKey, list[tuple[PublicKey, Revocation]]] = field(default_factory=dict)
    granted: dict[PublicKey, int] = field(default_factory=dict)
    kept: dict[PublicKey, frozenset[EntryId]] = field(default_factory=dict)
    resignations: set[EntryId] = field(default_factory=set)

    def resolve_cuts(self, key: PublicKey) -> None:
        """Compute the ids kept of `key`; those of its seniors are computed already."""
        rank = self.ranks[key]
        kept = [
            self._ids_inside(key, revocation.cuts)
            for author, revocation in self.revoked_by.get(key, ())
            if self.ranks[author] < rank
        ]
        # A resignation that a senior cut off does not count: replicas need not hold it.
        inside = frozenset.intersection(*kept) if kept else None
        for entry, member in self.by_author.get(key, ()):
            change = member.change
            if not isinstance(change, Revocation) or change.key != key:
                continue
            if inside is None or entry.id in inside:
                self.resignations.add(entry.id)
                kept.append(self._ids_inside(key, change.cuts))
        if kept:
            self.kept[key] = frozenset.intersection(*kept)

    def _ids_inside(self, key: PublicKey, cuts: Iterable[Cut]) -> frozenset[EntryId]:
        inside: set[EntryId] = set()
        for cut in cuts:
            entry = self.lookup(cut.id)
            if entry is None or entry.header.author != key or entry.id in inside:
                continue
            header = entry.header
            if (header.epoch, header.track, header.seq) != (cut.epoch, cut.track, cut.seq):
                continue
            while entry is not None and entry.id not in inside:
                inside.add(entry.id)
                prev = entry.header.prev
                entry = self.lookup(prev) if prev is not None else None
        return frozenset(inside)

    def apply_changes(self, owner: PublicKey, depth: int) -> list[PublicKey]:
        """Apply the valid changes of an owner whose cuts are resolved; return the new owners."""
        new_owners = []
        kept = self.kept.get(owner)
        for entry, member in self.by_author.get(owner, ()):
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
) -> Membership:
    """Fold the membership track.

    `changes` are the MEMBER entries to consider, in any order. `lookup` returns any
    admitted entry by id; it is used to walk a lane back from a cut.
    """
    by_author: dict[PublicKey, list[tuple[Entry, Member]]] = {}
    for entry, member in sorted(changes, key=lambda item: item[0].order_key):
        by_author.setdefault(entry.header.author, []).append((entry, member))
    state = _Fold(lookup, by_author)
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
    for key in state.granted:
        if key not in state.ranks:
            state.ranks[key] = (state.granted[key], 0)
            state.resolve_cuts(key)
    roles = {key: frozenset(value) for key, value in state.roles.items()}
    return Membership(roles, state.ranks, state.kept, frozenset(state.resignations))


_FOLDS_CACHED_MAX = 64
"""Number of folds at older heads that a Roster caches."""


class Roster:
    """The MEMBER entries of one log and their folds: of all of them, or at given heads."""

    def __init__(self, entries: Mapping[EntryId, Entry]) -> None:
        """Start empty; headers are read from `entries`, all admitted entries by id."""
        self._entries = entries
        self._genesis: Genesis | None = None
        self._changes: dict[EntryId, Member] = {}
        self._revoked: set[PublicKey] = set()
        """Keys that a revocation names, whether it counts or not."""
        self._joins: list[EntryId] = []
        self._unfolded: list[tuple[Entry, Member]] = []
        self._now: Membership | None = Membership()
        self._at: dict[tuple[EntryId, ...], Membership] = {}
        self._heads: tuple[EntryId, ...] | None = None

    def receive(self, entry: Entry, body: Genesis | Member | None) -> None:
        """Add a newly admitted entry of the membership track, or the genesis."""
        if isinstance(body, Genesis):
            self._genesis, self._now = body, None
        elif isinstance(body, Member):
            self._changes[entry.id] = body
            self._unfolded.append((entry, body))
            if isinstance(body.change, Revocation):
                self._revoked.add(body.change.key)
        elif entry.header.kind == Kind.JOIN:
            self._joins.append(entry.id)
        self._heads = None

    @property
    def now(self) -> Membership:
        """The fold over all MEMBER entries; the same object while it is unchanged."""
        # One fold for all new entries: a fold per entry would pass over all of them each time.
        current = self._now
        for entry, member in self._unfolded:
            if current is not None and current.may_change_with(entry, member):
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
        return reach(start, self._followed)

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
        return fold(self._genesis, changes, self._entries.get)
