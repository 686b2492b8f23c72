"""The membership fold as a brute-force fixpoint: assume, derive, repeat until nothing changes.

The oracle for replica/log/members.py, which decides all keys in one pass from the
most senior down, and for the visibility, the cover and the membership at given
heads that follow from it. It shares no code with these.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from replica.ids import EntryId, PublicKey
from replica.log import Cut, Entry, Genesis, Grant, Kind, Log, Member, Revocation, Role, Seal

Rank = tuple[int, int]

TAKES: dict[int, str] = {
    Kind.GENESIS: "owner",
    Kind.MEMBER: "owner",
    Kind.MESSAGE: "owner writer",
    Kind.TOOLS: "owner writer",
    Kind.REQUEST: "owner writer",
    Kind.CANCEL: "owner writer",
    Kind.DOCUMENT: "owner writer",
    Kind.SEAL: "host",
    Kind.CHECKPOINT: "host",
    Kind.GENERATION: "host",
    Kind.JOIN: "owner writer host",
}
"""The table of spec/02-entry §5, copied by hand; other kinds allow anyone."""


@dataclass
class NaiveMembership:
    """The membership assumed in one round, and derived for the next."""

    ranks: dict[PublicKey, Rank] = field(default_factory=dict)
    roles: dict[PublicKey, frozenset[Role]] = field(default_factory=dict)
    kept: dict[PublicKey, frozenset[EntryId]] = field(default_factory=dict)
    resigned: frozenset[EntryId] = frozenset()

    def sees(self, entry: Entry) -> bool:
        """Say whether an entry is visible."""
        header = entry.header
        anyone = "owner" if header.critical and header.kind != Kind.JOIN else "any"
        takes = TAKES.get(header.kind, anyone)
        roles = {role.name.lower() for role in self.roles.get(header.author, frozenset())}
        allowed = bool(roles) and (takes == "any" or not roles.isdisjoint(takes.split()))
        return allowed and entry.id in self.kept.get(header.author, {entry.id})

    def owns(self, key: PublicKey) -> bool:
        """Say whether a key has the role of owner."""
        return Role.OWNER in self.roles.get(key, frozenset())


def naive_membership_at(log: Log, heads: Iterable[EntryId]) -> NaiveMembership:
    """Return `M`: the membership of the entries `heads` reach through parents and prev."""
    reached = set(heads)
    while True:
        headers = [log.entries[i].header for i in reached]
        more = {i for h in headers for i in (h.prev, *h.parents) if i is not None}
        if more <= reached:
            return naive_membership(log, reached)
        reached |= more


def naive_covered(log: Log) -> set[EntryId]:
    """Return the entries of members inside all cuts, resignations, and all these name."""
    state = naive_membership(log)
    covered = {
        entry.id
        for entry in log.entries.values()
        if entry.id in state.resigned
        or (
            state.roles.get(entry.header.author, frozenset()) - {Role.READER}
            and entry.id in state.kept.get(entry.header.author, {entry.id})
        )
    }
    while True:
        more = {i for at in covered for i in _named(log, at)}
        if more <= covered:
            return covered
        covered |= more


def _named(log: Log, entry_id: EntryId) -> list[EntryId]:
    header, body = log.entries[entry_id].header, log.body(entry_id)
    named = [header.prev, header.basis, *header.parents]
    if isinstance(body, Seal):
        named += [body.request, body.prev_seal, *body.entries, *body.membership_heads]
    if isinstance(body, Member) and isinstance(body.change, Revocation):
        named += [cut.id for cut in body.change.cuts]
    return [i for i in named if i is not None]


def naive_membership(log: Log, among: Iterable[EntryId] | None = None) -> NaiveMembership:
    """Iterate until the membership reproduces itself; `among` are the changes considered."""
    changes = [
        (entry, body)
        for entry in map(log.entries.__getitem__, log.entries if among is None else among)
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
    for index, owner in enumerate(genesis.owners):
        result.ranks[owner] = (0, index)
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
        (entry.id, _inside(log, key, change.cuts))
        for entry, change in against
        if entry.header.author == key and entry.id in limit
    ]
    if not result.roles[key] - {Role.READER}:
        fixed = [
            (entry.header.lamport, entry.id)
            for entry, change in against
            if entry.header.author == key and entry.id in limit and _has_fixed_form(log, entry)
        ]
        own = [(entry_id, set()) for _, entry_id in sorted(fixed)[:1]]
    result.resigned |= {entry_id for entry_id, _ in own}
    if senior or own:
        result.kept[key] = frozenset(limit.intersection(*(inside for _, inside in own)))


def _has_fixed_form(log: Log, entry: Entry) -> bool:
    header = entry.header
    named = [i for i in _named(log, entry.id) if i != EntryId(log.conversation)]
    return header.seq == 0 and not named


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
