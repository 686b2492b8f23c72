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
from replica.ids import EntryId, PublicKey
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
        end = _end(log, order, state, end)
        forks = _requests_behind(log, covered, request, None)
        fork = max(forks, key=lambda e: e.order_key, default=None)
        if fork is not None and _leads_away(log, order, request, end, fork):
            base = resolved_basis(log, order, fork)
            end = _end_behind(log, order, state, covered, request, fork)
            is_open_yet = is_open(CoveredLog(log, covered), order, state, fork)
            if end == base and is_open_yet and _host(log, fork) == _host(log, request):
                return None
    chain = order.chains[end] if end is not None else []
    answer = order.answers.get(_seal(log, end).request) if end is not None else None
    entries = naive_coverage(log, order, request, chain, answer, state)
    if end is None or (answer is not None and (not queues or answer in entries)):
        return end, entries
    if not is_closed(log, order, request, chain, state):
        return None
    return end, naive_coverage(log, order, request, chain, None, state)


def _seal(log: Log, entry_id: EntryId) -> Seal:
    body = log.body(entry_id)
    assert isinstance(body, Seal)
    return body


def _host(log: Log, request: Entry) -> PublicKey | None:
    body = log.body(request.id)
    return body.host if isinstance(body, Request) else None


def _names_host(log: Log, state: NaiveMembership, request: Entry) -> bool:
    host = _host(log, request)
    if host is None or host in state.kept:
        return False
    return Role.HOST in state.roles.get(host, frozenset())


def _end(
    log: Log, order: NaiveOrder, state: NaiveMembership, start: EntryId | None
) -> EntryId | None:
    """Follow the earliest seals from `start`, without forks beside a visible answer."""
    end = start
    for seal in sorted(order.chains, key=lambda i: log.entries[i].order_key):
        chain = order.chains[seal]
        if (chain[-2] if len(chain) > 1 else None) != end:
            continue
        answer = order.answers.get(_seal(log, end).request) if end is not None else None
        is_beside = (
            log.entries[_seal(log, seal).request].header.conflict == Conflict.FORK
            and answer is not None
            and state.sees(log.entries[answer])
            and answer not in _seal(log, seal).entries
        )
        end = end if is_beside else seal
    return end


def _requests_behind(
    log: Log, covered: set[EntryId], request: Entry, fork: Entry | None
) -> list[Entry]:
    """Return the requests that one reaches, which fork, or are or reach the given one."""
    held = CoveredLog(log, covered)
    found = []
    for entry in (log.entries[i] for i in ancestors(held, request.header.parents)):
        forks = entry.header.conflict == Conflict.FORK
        reaches = fork is not None and fork.id in ancestors(held, [entry.id])
        if entry.header.kind == Kind.REQUEST and (forks if fork is None else reaches):
            found.append(entry)
    return found


def _end_behind(
    log: Log,
    order: NaiveOrder,
    state: NaiveMembership,
    covered: set[EntryId],
    request: Entry,
    fork: Entry,
) -> EntryId | None:
    """Return where a request goes on that follows `fork`, which leads away from its branch."""
    base = resolved_basis(log, order, fork)
    seal_of = {_seal(log, i).request: i for i in order.chains}
    last = request
    while last.id != fork.id:
        last = max(_requests_behind(log, covered, last, fork), key=lambda e: e.order_key)
        seal = seal_of.get(last.id)
        if seal is not None and (base is None or base in order.chains[seal]):
            return _end(log, order, state, seal)
    first = [
        i
        for i in sorted(order.chains, key=lambda i: log.entries[i].order_key)
        if order.chains[i][:-1] == (order.chains[base] if base is not None else [])
        and fork.id in _seal(log, i).entries
    ]
    return _end(log, order, state, first[0]) if first else base


def _leads_away(
    log: Log, order: NaiveOrder, request: Entry, end: EntryId | None, fork: Entry
) -> bool:
    """Say whether a seal behind `fork` is on another branch, and extends the request's basis."""
    basis, base = resolved_basis(log, order, request), resolved_basis(log, order, fork)
    extends = basis is None or (base is not None and basis in order.chains[base])
    return end != base and extends
