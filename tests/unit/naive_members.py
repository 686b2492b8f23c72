"""The membership fold as a brute-force fixpoint: assume, derive, repeat until nothing changes.

The oracle for replica/members.py, which settles everything in one pass from
the most senior key down.
"""

from dataclasses import dataclass, field

from replica.body import Cut, Genesis, Grant, Member, Revocation, Role
from replica.entry import Entry, Kind
from replica.ids import EntryId, PublicKey
from replica.log import Log

Rank = tuple[int, int]


@dataclass
class NaiveMembership:
    """What is assumed in one round, and derived for the next."""

    ranks: dict[PublicKey, Rank] = field(default_factory=dict)
    roles: dict[PublicKey, frozenset[Role]] = field(default_factory=dict)
    kept: dict[PublicKey, frozenset[EntryId]] = field(default_factory=dict)


def naive_membership(log: Log) -> NaiveMembership:
    """Iterate until the membership reproduces itself."""
    changes = [
        (entry, body)
        for entry in log.entries.values()
        if entry.header.kind == Kind.MEMBER and isinstance(body := log.body(entry.id), Member)
    ]
    state = NaiveMembership()
    for _ in range(len(changes) + 3):
        derived = _derive(log, changes, state)
        if derived == state:
            return state
        state = derived
    raise AssertionError("no fixpoint")


def _derive(
    log: Log, changes: list[tuple[Entry, Member]], state: NaiveMembership
) -> NaiveMembership:
    genesis = log.body(EntryId(log.conversation))
    assert isinstance(genesis, Genesis)
    valid = [
        (entry.header.author, member.change)
        for entry, member in changes
        if Role.OWNER in state.roles.get(entry.header.author, frozenset())
        and entry.id in state.kept.get(entry.header.author, {entry.id})
    ]
    result = NaiveMembership()
    for place, owner in enumerate(genesis.owners):
        result.ranks[owner] = (0, place)
        result.roles[owner] = frozenset({Role.OWNER})
    grants = [(state.ranks[a][0] + 1, c) for a, c in valid if isinstance(c, Grant)]
    known = [(depth, grant) for depth, grant in grants if grant.role in list(Role)]
    for key in {grant.key for _, grant in known} - set(genesis.owners):
        mine = [(depth, grant) for depth, grant in known if grant.key == key]
        as_owner = [depth for depth, grant in mine if grant.role == Role.OWNER]
        result.ranks[key] = (min(as_owner or [depth for depth, _ in mine]), 0)
    for _, grant in known:
        held = result.roles.get(grant.key, frozenset())
        result.roles[grant.key] = held | {Role(grant.role)}
    for key in result.ranks:
        _derive_cuts(log, changes, state, result, key)
    return result


def _derive_cuts(
    log: Log,
    changes: list[tuple[Entry, Member]],
    state: NaiveMembership,
    result: NaiveMembership,
    key: PublicKey,
) -> None:
    against = [
        (entry, member.change)
        for entry, member in changes
        if isinstance(member.change, Revocation) and member.change.key == key
    ]
    senior = [
        _inside(log, key, change.cuts)
        for entry, change in against
        if (author := entry.header.author) in state.ranks
        and Role.OWNER in state.roles[author]
        and state.ranks[author] < result.ranks[key]
        and entry.id in state.kept.get(author, {entry.id})
    ]
    limit = set(log.entries).intersection(*senior)
    own = [
        _inside(log, key, change.cuts)
        for entry, change in against
        if entry.header.author == key and entry.id in limit
    ]
    if senior or own:
        result.kept[key] = frozenset(limit.intersection(*own))


def _inside(log: Log, key: PublicKey, cuts: tuple[Cut, ...]) -> set[EntryId]:
    """Return every entry of `key` from which a cut is reached by following next entries."""
    ends = {
        cut.id
        for cut in cuts
        if (h := log.entries[cut.id].header).author == key
        and (h.epoch, h.track, h.seq) == (cut.epoch, cut.track, cut.seq)
    }
    while True:
        before = {log.entries[i].header.prev for i in ends} - {None} - ends
        if not before:
            return ends
        ends |= before  # type: ignore[arg-type]  # None is taken out above
