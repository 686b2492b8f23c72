"""The seal that a host may write for a request, word by word (spec/03-order §4, ORD-11).

The oracle for replica/conversation/next_seal.py. It shares no code with that module.
"""

from antiphon.conformance.naive_members import NaiveMembership
from antiphon.conformance.naive_order import (
    NaiveOrder,
    is_closed,
    naive_coverage,
    resolved_basis,
)
from antiphon.conformance.naive_tail import CoveredLog, ancestors, is_open
from replica.ids import EntryId
from replica.log import Conflict, Entry, Kind, Log, Request, Role, Seal

NextSeal = tuple[EntryId | None, list[EntryId]]


def naive_sealable(
    log: Log, order: NaiveOrder, state: NaiveMembership, covered: set[EntryId], request: Entry
) -> NextSeal | None:
    """Return the prev_seal and the entries of the seal that a request may get; None for none."""
    seal_of = {_seal(log, i).request: i for i in order.chains}
    if request.id in seal_of or request.id in order.answers:
        return None
    if not state.sees(request) or not _names_host(log, state, request):
        return None
    end = resolved_basis(log, order, request)
    queues = request.header.conflict == Conflict.QUEUE
    if queues:
        end = _end(log, order, end, None)
        fork = _last_fork(log, covered, request)
        if fork is not None and _leads_away(log, order, request, end, fork):
            base = resolved_basis(log, order, fork)
            end = _end(log, order, base, fork.id)
            is_open_yet = is_open(CoveredLog(log, covered), order, state, fork)
            if end == base and is_open_yet and _names_host(log, state, fork):
                return None
    chain = order.chains[end] if end is not None else []
    answer = order.answers.get(_seal(log, end).request) if end is not None else None
    entries = naive_coverage(log, order, request, chain, answer, state)
    if end is None or (answer is not None and (not queues or answer in entries)):
        return end, entries
    if not is_closed(log, request, chain, state):
        return None
    return end, naive_coverage(log, order, request, chain, None, state)


def _seal(log: Log, entry_id: EntryId) -> Seal:
    body = log.body(entry_id)
    assert isinstance(body, Seal)
    return body


def _names_host(log: Log, state: NaiveMembership, request: Entry) -> bool:
    body = log.body(request.id)
    if not isinstance(body, Request) or body.host in state.kept:
        return False
    return Role.HOST in state.roles.get(body.host, frozenset())


def _end(
    log: Log, order: NaiveOrder, start: EntryId | None, listing: EntryId | None
) -> EntryId | None:
    """Follow the earliest seals from `start`; with `listing`, those that have it in a context."""
    end = start
    for seal in sorted(order.chains, key=lambda i: log.entries[i].order_key):
        chain = order.chains[seal]
        before = chain[-2] if len(chain) > 1 else None
        if before == end and (listing is None or listing in _context(log, chain)):
            end = seal
    return end


def _context(log: Log, chain: list[EntryId]) -> set[EntryId]:
    return {listed for seal in chain for listed in _seal(log, seal).entries}


def _last_fork(log: Log, covered: set[EntryId], request: Entry) -> Entry | None:
    behind = ancestors(CoveredLog(log, covered), request.header.parents)
    forks = [
        log.entries[i]
        for i in behind
        if log.entries[i].header.kind == Kind.REQUEST
        and log.entries[i].header.conflict == Conflict.FORK
    ]
    return max(forks, key=lambda e: e.order_key, default=None)


def _leads_away(
    log: Log, order: NaiveOrder, request: Entry, end: EntryId | None, fork: Entry
) -> bool:
    """Say whether a seal behind `fork` is on another branch, and extends the request's basis."""
    if end is not None and fork.id in _context(log, order.chains[end]):
        return False
    basis, base = resolved_basis(log, order, request), resolved_basis(log, order, fork)
    return basis is None or (base is not None and basis in order.chains[base])
