"""The tail of a branch and its frontier, sentence by sentence (spec/03-order §3, ORD-10).

The oracle for replica/order/tail.py. It shares no code with that module.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Protocol

from antiphon.conformance.naive_members import NaiveMembership
from antiphon.conformance.naive_order import LISTED_KINDS, NaiveOrder
from replica.ids import ConversationId, EntryId, Track
from replica.log import Body, Conflict, Entry, Kind, Log, Role, Seal

TALKERS = {Role.WRITER, Role.OWNER}
PARENTS = 64


class NaiveLog(Protocol):
    """The covered entries of a conversation."""

    @property
    def conversation(self) -> ConversationId:
        """Return the id of the conversation."""

    @property
    def entries(self) -> Mapping[EntryId, Entry]:
        """Return the entries by id."""

    def body(self, entry_id: EntryId, /) -> Body | None:
        """Return a body, None if nobody can read it."""

    def children(self, entry_id: EntryId, /) -> Iterable[EntryId]:
        """Return the entries of which this one is a parent."""


class CoveredLog:
    """The covered entries of a log that holds others, too."""

    def __init__(self, log: Log, covered: set[EntryId]) -> None:
        """Look at the entries that the naive membership fold finds covered."""
        self.conversation = log.conversation
        self.entries = {i: log.entries[i] for i in covered}
        self._log = log

    def body(self, entry_id: EntryId, /) -> Body | None:
        """Return a body, None if nobody can read it."""
        return self._log.body(entry_id)

    def children(self, entry_id: EntryId, /) -> list[EntryId]:
        """Return the covered entries of which this one is a parent."""
        return [i for i, e in self.entries.items() if entry_id in e.header.parents]


def naive_start(
    log: NaiveLog, order: NaiveOrder, state: NaiveMembership, tip: EntryId | None
) -> EntryId:
    """Return the answer of a tip; else the first CANCEL that closes it; else its request."""
    if tip is None:
        return EntryId(log.conversation)
    request = _request_of(log, tip)
    return order.answers.get(request) or (_closing(log, state, request) or [request])[0]


def naive_tail(
    log: NaiveLog, order: NaiveOrder, state: NaiveMembership, tip: EntryId | None
) -> tuple[EntryId, ...]:
    """Return the unsealed entries after a tip, by (lamport, id)."""
    begin = naive_start(log, order, state, tip)
    found = _unsealed_after(log, order, begin)
    if tip is not None and begin != _request_of(log, tip):
        meanwhile = _unsealed_after(log, order, _request_of(log, tip))
        asked = {i for i in meanwhile - found if is_open(log, order, state, log.entries[i])}
        before = _joined(asked, meanwhile, lambda i: log.entries[i].header.parents)
        found |= meanwhile - before - _joined(asked, meanwhile, log.children)
    if tip is not None:
        found |= naive_late(log, order, state, tip)
    return tuple(sorted((i for i in found if _stands(log, state, log.entries[i])), key=_key(log)))


def naive_late(
    log: NaiveLog, order: NaiveOrder, state: NaiveMembership, tip: EntryId
) -> set[EntryId]:
    """Return the messages that no sealed request reaches, of this branch and of no other."""
    chain, behind = (
        order.chains[tip],
        _unsealed_after(log, order, naive_start(log, order, state, tip)),
    )
    listed = {i for seal in chain for i in (*_seal(log, seal).entries, *order.withdrawn[seal])}
    sealed = {_request_of(log, seal) for seal in order.chains}
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


def _seal(log: NaiveLog, seal: EntryId) -> Seal:
    body = log.body(seal)
    assert isinstance(body, Seal)
    return body


def _request_of(log: NaiveLog, seal: EntryId) -> EntryId:
    return _seal(log, seal).request


def forks_or_is_open(
    log: NaiveLog, order: NaiveOrder, state: NaiveMembership, request: Entry
) -> bool:
    """Say whether an unsealed request opens a branch of its own, or still may be answered."""
    forks = request.header.conflict == Conflict.FORK
    return forks or is_open(log, order, state, request)


def _ways_from(start: set[EntryId], log: NaiveLog, order: NaiveOrder) -> set[EntryId]:
    sealed = {listed for seal in order.chains for listed in _seal(log, seal).entries}
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
    log: NaiveLog, order: NaiveOrder, state: NaiveMembership, tip: EntryId | None
) -> tuple[EntryId, ...]:
    """Return the entries of tail and start without successors among them: start and last, 64.

    With them go the CANCELs of withdrawn messages that they reach, of which they reach none.
    """
    start = naive_start(log, order, state, tip)
    said = {start, *naive_tail(log, order, state, tip)}
    chain = order.chains[tip] if tip is not None else []
    settled = {i for s in chain for i in (*_seal(log, s).entries, *order.withdrawn[s])}
    reached = ancestors(log, said, until=settled)
    for message in (i for i in reached if log.entries[i].header.kind == Kind.MESSAGE):
        closing = _closing(log, state, message)
        if closing and reached.isdisjoint(closing):
            said.add(closing[0])
    behind = [ancestors(log, log.entries[i].header.parents) for i in said]
    ends = said.difference(*behind)
    kept = {start} & ends
    return tuple(sorted([*kept, *sorted(ends - kept, key=_key(log))[len(kept) - PARENTS :]]))


def _key(log: NaiveLog) -> Callable[[EntryId], tuple[int, EntryId]]:
    return lambda i: (log.entries[i].header.lamport, i)


def ancestors(
    log: NaiveLog, start: Iterable[EntryId], until: Container[EntryId] = ()
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


def _closing(log: NaiveLog, state: NaiveMembership, request: EntryId) -> list[EntryId]:
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


def _unsealed_after(log: NaiveLog, order: NaiveOrder, start: EntryId) -> set[EntryId]:
    sealed = {listed for seal in order.chains for listed in _seal(log, seal).entries}
    found: set[EntryId] = set()
    todo = list(log.children(start))
    while todo:
        at = todo.pop()
        header = log.entries[at].header
        if at in found or at in sealed or header.kind == Kind.SEAL:
            continue
        if header.track == Track.CONVERSATION:
            found.add(at)
            todo += log.children(at)
    return found


def _stands(log: NaiveLog, state: NaiveMembership, entry: Entry) -> bool:
    header = entry.header
    roles = state.roles.get(header.author, frozenset())
    is_kind = header.kind in LISTED_KINDS or (header.kind == Kind.JOIN and roles & TALKERS)
    return bool(is_kind) and state.sees(entry) and log.body(entry.id) is not None


def is_open(log: NaiveLog, order: NaiveOrder, state: NaiveMembership, entry: Entry) -> bool:
    """Say whether a request is visible, and neither answered, refused nor closed."""
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
