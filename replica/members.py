"""Who may what, folded from the membership track (spec/03-order §2).

A pure function of the entries given: arrival order, clocks and configuration
play no part, so replicas that hold the same entries see the same members.

Theory. Owners are ranked: those of the genesis in their order, then by depth
of grant. A revocation counts only from a strictly senior key or from the key
itself. So the verdict on a key depends on seniors alone, and one pass from
the top settles everything, whatever cycles of revocation juniors write.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from replica.body import Cut, Genesis, Grant, Member, Revocation, Role
from replica.entry import Entry, Kind
from replica.ids import EntryId, PublicKey

Rank = tuple[int, int]
"""(depth of grant, place in the genesis); smaller is senior."""

_WRITERS = frozenset({Role.WRITER, Role.OWNER})
_EVERYONE = frozenset(Role)

ROLES_OF_KIND: dict[int, frozenset[Role]] = {
    Kind.GENESIS: frozenset({Role.OWNER}),
    Kind.MEMBER: frozenset({Role.OWNER}),
    Kind.MESSAGE: _WRITERS,
    Kind.TOOLS: _WRITERS,
    Kind.REQUEST: _WRITERS,
    Kind.CANCEL: _WRITERS,
    Kind.DOCUMENT: _WRITERS,
    Kind.SEAL: frozenset({Role.HOST}),
    Kind.GENERATION: frozenset({Role.HOST}),
    Kind.JOIN: _EVERYONE,
}
"""What each kind takes; an entry its author's roles don't allow is void."""


@dataclass(frozen=True, slots=True)
class Membership:
    """The outcome of the fold."""

    roles: dict[PublicKey, frozenset[Role]] = field(default_factory=dict)
    ranks: dict[PublicKey, Rank] = field(default_factory=dict)
    kept: dict[PublicKey, frozenset[EntryId]] = field(default_factory=dict)
    """Per revoked key, the ids that satisfy all its cuts."""
    resignations: frozenset[EntryId] = frozenset()
    """Revocations of a key by itself that count, be they inside its cuts or not."""

    def is_member(self, key: PublicKey) -> bool:
        """Say whether `key` may read here: it has a role and is not revoked."""
        return bool(self.roles.get(key)) and key not in self.kept

    def may_write(self, key: PublicKey, kind: int) -> bool:
        """Say whether the roles of `key` allow `kind`; unknown kinds take any role."""
        return bool(self.roles.get(key, frozenset()) & ROLES_OF_KIND.get(kind, _EVERYONE))

    def satisfies_cuts(self, entry: Entry) -> bool:
        """Say whether `entry` lies inside every cut on its author."""
        kept = self.kept.get(entry.header.author)
        return kept is None or entry.id in kept

    def covers(self, entry: Entry) -> bool:
        """Say whether digest and sync cover `entry` for its own sake (spec/03-order §5).

        What only keys without a valid grant wrote, or wrote behind a cut, is
        covered as an ancestor or not at all.
        """
        if entry.id in self.resignations:
            return True
        return bool(self.roles.get(entry.header.author)) and self.satisfies_cuts(entry)

    def is_visible(self, entry: Entry) -> bool:
        """Say whether `entry` counts: allowed by its author's roles, inside all cuts."""
        return self.may_write(entry.header.author, entry.header.kind) and self.satisfies_cuts(entry)


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

    def settle_cuts(self, key: PublicKey) -> None:
        """Compute what is kept of `key`; its seniors are settled already."""
        rank = self.ranks[key]
        kept = [
            self._ids_inside(key, revocation.cuts)
            for author, revocation in self.revoked_by.get(key, ())
            if self.ranks[author] < rank
        ]
        # What a senior cut off can't resign any more: replicas need not even hold it.
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
        """Let the valid changes of a settled owner count; return keys newly made owners."""
        new_owners = []
        kept = self.kept.get(owner)
        for entry, member in self.by_author.get(owner, ()):
            change = member.change
            if kept is not None and entry.id not in kept:
                continue
            if isinstance(change, Revocation):
                self.revoked_by.setdefault(change.key, []).append((owner, change))
            elif change.role in _EVERYONE:
                if change.role == Role.OWNER and Role.OWNER not in self.roles.get(
                    change.key, frozenset()
                ):
                    new_owners.append(change.key)
                self._grant(change, depth)
        return new_owners

    def _grant(self, change: Grant, depth: int) -> None:
        self.roles.setdefault(change.key, set()).add(Role(change.role))
        self.granted[change.key] = min(depth, self.granted.get(change.key, depth))


def fold(
    genesis: Genesis,
    changes: Iterable[tuple[Entry, Member]],
    lookup: Callable[[EntryId], Entry | None],
) -> Membership:
    """Fold the membership track.

    `changes` are all admitted MEMBER entries considered, in any order; `lookup`
    finds any admitted entry by id, for walking lanes behind a cut.
    """
    by_author: dict[PublicKey, list[tuple[Entry, Member]]] = {}
    for entry, member in sorted(changes, key=lambda item: item[0].order_key):
        by_author.setdefault(entry.header.author, []).append((entry, member))
    state = _Fold(lookup, by_author)
    for place, owner in enumerate(genesis.owners):
        state.roles[owner] = {Role.OWNER}
        state.ranks[owner] = (0, place)
    level: list[PublicKey] = []
    for owner in genesis.owners:
        state.settle_cuts(owner)
        level += state.apply_changes(owner, 1)
    depth = 1
    while level:
        for owner in level:
            state.ranks[owner] = (depth, 0)
        for owner in level:
            state.settle_cuts(owner)
        depth += 1
        level = [new for owner in level for new in state.apply_changes(owner, depth)]
    for key in state.granted:
        if key not in state.ranks:
            state.ranks[key] = (state.granted[key], 0)
            state.settle_cuts(key)
    roles = {key: frozenset(value) for key, value in state.roles.items()}
    return Membership(roles, state.ranks, state.kept, frozenset(state.resignations))
