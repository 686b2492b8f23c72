"""The order of a log, computed from scratch, with lists and sets only.

The oracle for replica/order/tree.py. It shares no code with that module, nor with
the membership fold.
"""

import hashlib
from dataclasses import dataclass, field

from antiphon.conformance.naive_members import NaiveMembership, naive_covered, naive_membership_at
from replica.ids import EntryId, Track
from replica.log import Conflict, Entry, Kind, Log, Request, Seal

LISTED_KINDS = {Kind.MESSAGE, Kind.TOOLS, Kind.REQUEST, Kind.GENERATION}


@dataclass
class NaiveOrder:
    """Per valid seal its chain of seals, and what it withdraws; per request its answer."""

    chains: dict[EntryId, list[EntryId]] = field(default_factory=dict)
    withdrawn: dict[EntryId, set[EntryId]] = field(default_factory=dict)
    void: set[EntryId] = field(default_factory=set)
    answers: dict[EntryId, EntryId] = field(default_factory=dict)


def naive_order(log: Log) -> NaiveOrder:
    """Fold all covered entries in (lamport, id) order."""
    result = NaiveOrder()
    covered = [log.entries[i] for i in naive_covered(log)]
    sealed: dict[EntryId, EntryId] = {}
    for entry in sorted(covered, key=lambda e: (e.header.lamport, e.id)):
        seal = log.body(entry.id)
        if entry.header.kind != Kind.SEAL:
            continue
        assert isinstance(seal, Seal)
        if _counts(log, result, entry, seal) and seal.request not in sealed:
            before = result.chains.get(seal.prev_seal, []) if seal.prev_seal else []
            result.chains[entry.id] = [*before, entry.id]
            state = naive_membership_at(log, seal.membership_heads)
            result.withdrawn[entry.id] = _withdrawn(
                log, _closure(log, seal.request, settled(log, result, before)), state
            )
            sealed[seal.request] = entry.id
        else:
            result.void.add(entry.id)
    _find_answers(log, covered, result, sealed)
    return result


def _find_answers(
    log: Log, covered: list[Entry], result: NaiveOrder, sealed: dict[EntryId, EntryId]
) -> None:
    for request in (e for e in covered if e.header.kind == Kind.REQUEST):
        seal = sealed.get(request.id)
        body = log.body(request.id)
        assert isinstance(body, Request)
        generations = [
            e
            for e in covered
            if e.header.kind == Kind.GENERATION
            and e.header.author == body.host
            and e.header.parents == ((seal or request.id),)
        ]
        if generations:
            first = min(generations, key=lambda e: (e.header.lamport, e.id))
            result.answers[request.id] = first.id


def _seal(log: Log, entry_id: EntryId) -> Seal:
    seal = log.body(entry_id)
    assert isinstance(seal, Seal)
    return seal


def _context(log: Log, chain: list[EntryId]) -> list[EntryId]:
    return [listed for seal in chain for listed in _seal(log, seal).entries]


def settled(log: Log, result: NaiveOrder, chain: list[EntryId]) -> set[EntryId]:
    """Return what the seals of a chain list and what they withdraw."""
    return {*_context(log, chain), *(i for seal in chain for i in result.withdrawn[seal])}


def _counts(log: Log, result: NaiveOrder, entry: Entry, seal: Seal) -> bool:
    request = log.entries[seal.request]
    asked = log.body(request.id)
    if entry.header.parents != (seal.request,) or not isinstance(asked, Request):
        return False
    membership = naive_membership_at(log, seal.membership_heads)
    visible = membership.sees(entry) and membership.sees(request)
    if asked.host != entry.header.author or not visible:
        return False
    if seal.prev_seal is not None and seal.prev_seal not in result.chains:
        return False
    chain = result.chains[seal.prev_seal] if seal.prev_seal else []
    if not _extends_rightly(log, result, request, seal, chain, membership):
        return False
    answer = seal.entries[0] if seal.prev_seal is not None else None
    if list(seal.entries) != naive_coverage(log, result, request, chain, answer, membership):
        return False
    digest = hashlib.sha256((19).to_bytes(8, "little") + b"antiphon/v1/context" + bytes(8)).digest()
    for listed in [*_context(log, chain), *seal.entries]:
        digest = hashlib.sha256(digest + listed + log.entries[listed].header.body_digest).digest()
    return digest == seal.context_digest


def _extends_rightly(
    log: Log,
    result: NaiveOrder,
    request: Entry,
    seal: Seal,
    chain: list[EntryId],
    membership: NaiveMembership,
) -> bool:
    basis = resolved_basis(log, result, request)
    if request.header.conflict == Conflict.FORK:
        return seal.prev_seal == basis
    if basis is not None and basis not in chain:
        return False
    first = log.entries[seal.entries[0]].header
    answered = first.kind == Kind.GENERATION and first.parents == (seal.prev_seal,)
    is_first = seal.prev_seal is None
    return is_first or answered or is_closed(log, result, request, chain, membership)


def resolved_basis(log: Log, result: NaiveOrder, request: Entry) -> EntryId | None:
    """Return the basis of a request, or the nearest seal before it that counts."""
    basis = request.header.basis
    while basis is not None and basis not in result.chains:
        seal = log.body(basis)  # a void seal may name any entry as prev_seal
        basis = seal.prev_seal if isinstance(seal, Seal) else None
    return basis


def is_closed(
    log: Log,
    result: NaiveOrder,
    request: Entry,
    chain: list[EntryId],
    membership: NaiveMembership,
) -> bool:
    """Say whether C of ORD-6 has a CANCEL that closes the last seal of a chain."""
    asked = log.entries[_seal(log, chain[-1]).request]
    unlisted = _closure(log, request.id, settled(log, result, chain))
    return _is_cancelled(log, asked, unlisted, membership)


def _withdrawn(log: Log, closure: set[EntryId], state: NaiveMembership) -> set[EntryId]:
    messages = (log.entries[i] for i in closure if log.entries[i].header.kind == Kind.MESSAGE)
    return {e.id for e in messages if _is_cancelled(log, e, closure, state)}


def _is_cancelled(log: Log, named: Entry, closure: set[EntryId], state: NaiveMembership) -> bool:
    """Say whether C of ORD-6 has a CANCEL of an entry, by its author or an owner."""
    for cancel in (log.entries[i] for i in closure):
        names_it = cancel.header.kind == Kind.CANCEL and cancel.header.parents == (named.id,)
        author = cancel.header.author
        may_cancel = author == named.header.author or state.owns(author)
        if names_it and may_cancel and state.sees(cancel):
            return True
    return False


def _closure(log: Log, start: EntryId, stop: set[EntryId]) -> set[EntryId]:
    found: set[EntryId] = set()
    todo = [start]
    while todo:
        at = todo.pop()
        if at not in found and at not in stop:
            found.add(at)
            todo += log.entries[at].header.parents
    return found


def naive_coverage(
    log: Log,
    result: NaiveOrder,
    request: Entry,
    chain: list[EntryId],
    answer: EntryId | None,
    membership: NaiveMembership,
) -> list[EntryId]:
    """Return what a seal behind a chain lists, with that answer of its end if it queues."""
    closure = _closure(log, request.id, settled(log, result, chain))
    withdrawn = _withdrawn(log, closure, membership)
    if request.header.conflict == Conflict.QUEUE and answer is not None:
        closure.add(answer)
    listed = [
        log.entries[i]
        for i in closure - withdrawn
        if _is_listed(log, result, i, closure, membership)
    ]
    if request.id in closure and request not in listed:
        listed.append(request)

    def order(entry: Entry) -> tuple[bool, int, EntryId]:
        answers = entry.header.kind == Kind.GENERATION and (
            entry.header.parents == tuple(chain[-1:])
        )
        return (not answers, entry.header.lamport, entry.id)

    return [e.id for e in sorted(listed, key=order)]


def _is_listed(
    log: Log,
    result: NaiveOrder,
    entry_id: EntryId,
    closure: set[EntryId],
    membership: NaiveMembership,
) -> bool:
    entry = log.entries[entry_id]
    header = entry.header
    if header.kind not in LISTED_KINDS or not membership.sees(entry):
        return False
    lane = [log.entries[i].header for i in closure if log.entries[i].header.lane == header.lane]
    seqs = [h.seq for h in lane]
    if any(seqs.count(seq) > 1 for seq in seqs if seq <= header.seq):
        return False
    if header.kind != Kind.GENERATION:
        return True
    if len(header.parents) != 1 or header.parents[0] not in result.chains:
        return False
    assert header.track == Track.CONVERSATION
    return log.entries[header.parents[0]].header.author == header.author
