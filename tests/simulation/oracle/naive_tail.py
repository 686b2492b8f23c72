"""The tail of a branch and its frontier, sentence by sentence (spec/03-order §3, ORD-10)."""

from collections.abc import Callable, Container, Iterable

from antiphon.conformance.naive_members import NaiveMembership
from antiphon.conformance.naive_order import LISTED_KINDS, NaiveOrder
from replica.ids import EntryId, Track
from replica.log.body import Role
from replica.log.entry import Conflict, Entry
from replica.log.kinds import Kind
from tests.simulation.oracle.history import RecordedLog

TALKERS = {Role.WRITER, Role.OWNER}
PARENTS = 64


def naive_start(
    log: RecordedLog, order: NaiveOrder, state: NaiveMembership, tip: EntryId | None
) -> EntryId:
    """Return the answer of a tip; else the first CANCEL that closes it; else its request."""
    if tip is None:
        return EntryId(log.conversation)
    request = log.body(tip).request
    return order.answers.get(request) or (_closing(log, state, request) or [request])[0]


def naive_tail(
    log: RecordedLog, order: NaiveOrder, state: NaiveMembership, tip: EntryId | None
) -> tuple[EntryId, ...]:
    """Return the unsealed entries after a tip, by (lamport, id)."""
    begin = naive_start(log, order, state, tip)
    found = _unsealed_after(log, order, begin)
    if tip is not None and begin != log.body(tip).request:
        meanwhile = _unsealed_after(log, order, log.body(tip).request)
        asked = {i for i in meanwhile - found if _is_open(log, order, state, log.entries[i])}
        before = _joined(asked, meanwhile, lambda i: log.entries[i].header.parents)
        found |= meanwhile - before - _joined(asked, meanwhile, log.children)
    if tip is not None:
        found |= naive_late(log, order, state, tip)
    return tuple(sorted((i for i in found if _stands(state, log.entries[i])), key=_key(log)))


def naive_late(
    log: RecordedLog, order: NaiveOrder, state: NaiveMembership, tip: EntryId
) -> set[EntryId]:
    """Return the messages that no sealed request reaches, of this branch and of no other."""
    chain, behind = (
        order.chains[tip],
        _unsealed_after(log, order, naive_start(log, order, state, tip)),
    )
    listed = {i for seal in chain for i in log.body(seal).entries}
    sealed = {log.body(seal).request for seal in order.chains}
    reached = ancestors(log, sealed)
    asked = {
        i
        for i, e in log.entries.items()
        if e.header.kind == Kind.REQUEST
        and i not in listed | behind
        and (i in sealed or (state.sees(e) and forks_or_is_open(log, order, state, e)))
    }
    apart, followed = asked | (order.chains.keys() - chain), ancestors(log, asked)
    ways = _ways_from({EntryId(log.conversation), *chain, *listed}, log, order)
    return {
        i
        for i in ways - reached - followed
        if log.entries[i].header.kind == Kind.MESSAGE
        and apart.isdisjoint(ancestors(log, [i], until=listed))
    }


def forks_or_is_open(
    log: RecordedLog, order: NaiveOrder, state: NaiveMembership, request: Entry
) -> bool:
    """Say whether an unsealed request opens a branch of its own, or still may be answered."""
    forks = request.header.conflict == Conflict.FORK
    return forks or _is_open(log, order, state, request)


def _ways_from(start: set[EntryId], log: RecordedLog, order: NaiveOrder) -> set[EntryId]:
    sealed = {listed for seal in order.chains for listed in log.body(seal).entries}
    found: set[EntryId] = set()
    todo = [child for i in start for child in log.children(i)]
    while todo:
        at = todo.pop()
        on_track = log.entries[at].header.track == Track.CONVERSATION
        if on_track and at not in found | sealed | order.chains.keys():
            found.add(at)
            todo += log.children(at)
    return found


def naive_frontier(
    log: RecordedLog, order: NaiveOrder, state: NaiveMembership, tip: EntryId | None
) -> tuple[EntryId, ...]:
    """Return the entries of tail and start without successors among them: start and last, 64."""
    start = naive_start(log, order, state, tip)
    said = {start, *naive_tail(log, order, state, tip)}
    behind = [ancestors(log, log.entries[i].header.parents) for i in said]
    ends = said.difference(*behind)
    kept = {start} & ends
    return tuple(sorted([*kept, *sorted(ends - kept, key=_key(log))[len(kept) - PARENTS :]]))


def _key(log: RecordedLog) -> Callable[[EntryId], tuple[int, EntryId]]:
    return lambda i: (log.entries[i].header.lamport, i)


def ancestors(
    log: RecordedLog, start: Iterable[EntryId], until: Container[EntryId] = ()
) -> set[EntryId]:
    """Return these entries and all they reach through parents, without those of `until`."""
    found: set[EntryId] = set()
    todo = list(start)
    while todo:
        at = todo.pop()
        if at not in found and at not in until:
            found.add(at)
            todo += log.entries[at].header.parents
    return found


def _closing(log: RecordedLog, state: NaiveMembership, request: EntryId) -> list[EntryId]:
    asker = log.entries[request].header.author
    return sorted(
        (
            i
            for i, e in log.entries.items()
            if e.header.kind == Kind.CANCEL
            and e.header.parents == (request,)
            and state.sees(e)
            and (e.header.author == asker or state.owns(e.header.author))
        ),
        key=_key(log),
    )


def _unsealed_after(log: RecordedLog, order: NaiveOrder, start: EntryId) -> set[EntryId]:
    sealed = {listed for seal in order.chains for listed in log.body(seal).entries}
    found: set[EntryId] = set()
    todo = log.children(start)
    while todo:
        at = todo.pop()
        header = log.entries[at].header
        if at in found or at in sealed or header.kind == Kind.SEAL:
            continue
        if header.track == Track.CONVERSATION:
            found.add(at)
            todo += log.children(at)
    return found


def _stands(state: NaiveMembership, entry: Entry) -> bool:
    header = entry.header
    roles = state.roles.get(header.author, frozenset())
    is_kind = header.kind in LISTED_KINDS or (header.kind == Kind.JOIN and roles & TALKERS)
    return bool(is_kind) and state.sees(entry)


def _is_open(log: RecordedLog, order: NaiveOrder, state: NaiveMembership, entry: Entry) -> bool:
    is_request = entry.header.kind == Kind.REQUEST and state.sees(entry)
    return is_request and entry.id not in order.answers and not _closing(log, state, entry.id)


def _joined(
    start: set[EntryId], among: set[EntryId], follow: Callable[[EntryId], Iterable[EntryId]]
) -> set[EntryId]:
    """Return the entries that are reached from `start` by `follow` within `among`."""
    found: set[EntryId] = set()
    todo = list(start)
    while todo:
        at = todo.pop()
        if at not in found and at in among:
            found.add(at)
            todo += follow(at)
    return found
