"""The tail of a branch and its frontier, sentence by sentence (spec/03-order §3, ORD-10)."""

from collections.abc import Callable, Iterable

from replica.ids import EntryId, Track
from replica.log.body import Role
from replica.log.entry import Entry
from replica.log.kinds import Kind
from tests.replica.log.naive_members import NaiveMembership
from tests.replica.order.naive_order import LISTED_KINDS, NaiveOrder
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
        asked = {i for i in meanwhile if _is_open(log, order, state, log.entries[i])}
        found |= meanwhile - _joined(log, asked, meanwhile)
    return tuple(sorted((i for i in found if _stands(state, log.entries[i])), key=_key(log)))


def naive_frontier(
    log: RecordedLog, order: NaiveOrder, state: NaiveMembership, tip: EntryId | None
) -> tuple[EntryId, ...]:
    """Return the entries of tail and start without successors among them: the last 64."""
    said = {naive_start(log, order, state, tip), *naive_tail(log, order, state, tip)}
    behind = [_before(log, log.entries[i].header.parents) for i in said]
    ends = said.difference(*behind)
    return tuple(sorted(sorted(ends, key=_key(log))[-PARENTS:]))


def _key(log: RecordedLog) -> Callable[[EntryId], tuple[int, EntryId]]:
    return lambda i: (log.entries[i].header.lamport, i)


def _before(log: RecordedLog, start: Iterable[EntryId]) -> set[EntryId]:
    found: set[EntryId] = set()
    todo = list(start)
    while todo:
        at = todo.pop()
        if at not in found:
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


def _joined(log: RecordedLog, start: set[EntryId], among: set[EntryId]) -> set[EntryId]:
    """Return the entries connected to `start` by ancestry within `among`."""
    found: set[EntryId] = set()
    todo = list(start)
    while todo:
        at = todo.pop()
        if at not in found and at in among:
            found.add(at)
            todo += [*log.entries[at].header.parents, *log.children(at)]
    return found
