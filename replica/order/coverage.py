"""The rule of coverage: the entries a seal lists (spec/03-order §3, ORD-6).

Pure. The list depends on the ancestors of a request alone and on no body, so every
replica computes the same one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from replica.ids import EntryId, Lane
from replica.log import CONTEXT_KINDS, Conflict, Entry, Kind, Log, Membership, reach
from replica.order.cancels import withdrawn
from replica.order.node import SealNode


@dataclass(frozen=True, slots=True)
class Covered:
    """What a seal takes out of the entries that its chain has not settled yet."""

    entries: tuple[EntryId, ...]
    """The ids that it lists, in order."""
    withdrawn: frozenset[EntryId] = frozenset()
    """Messages that it leaves out, and every seal behind it too."""


def coverage(
    log: Log,
    nodes: Mapping[EntryId, SealNode],
    request: EntryId,
    parent: SealNode | None,
    answer: EntryId | None,
    membership: Membership,
) -> Covered:
    """Return what a seal of `request` on `parent` lists and leaves out.

    `nodes` are the seals that count. For a queued request the list has `answer`, a
    generation of `parent`, even if the request does not reach it.
    """
    closure = uncovered_closure(log, [request], parent)
    left_out = withdrawn(log, closure, membership)
    if answer is not None and log.entries[request].header.conflict == Conflict.QUEUE:
        closure.add(answer)
    listed = _listed(log, nodes, closure, left_out, parent, membership, request)
    return Covered(listed, frozenset(left_out))


def coverage_before(
    log: Log,
    nodes: Mapping[EntryId, SealNode],
    parents: Iterable[EntryId],
    parent: SealNode | None,
    membership: Membership,
) -> tuple[EntryId, ...]:
    """Return what a seal on `parent` lists before its request, if that has these parents."""
    closure = uncovered_closure(log, parents, parent)
    left_out = withdrawn(log, closure, membership)
    return _listed(log, nodes, closure, left_out, parent, membership, None)


def lists_answer(
    log: Log, nodes: Mapping[EntryId, SealNode], parents: Iterable[EntryId], parent: SealNode
) -> bool:
    """Say whether a queued request with these parents gets the first answer of `parent` listed.

    It is not while there is none, nor where that is void, or in a lane that forks there.
    """
    answer = parent.generation
    if answer is None:
        return False
    before = coverage_before(log, nodes, (*parents, answer), parent, log.membership)
    return answer in before


def _listed(
    log: Log,
    nodes: Mapping[EntryId, SealNode],
    closure: set[EntryId],
    left_out: set[EntryId],
    parent: SealNode | None,
    membership: Membership,
    request: EntryId | None,
) -> tuple[EntryId, ...]:
    """Return the ids in a closure that a seal lists, in order; `request` stays in any case."""
    forks = _forks(log, closure)
    listed = [
        entry
        for entry in map(log.entries.__getitem__, log.meter.turns(closure))
        if entry.header.kind in CONTEXT_KINDS
        and entry.id not in left_out
        and (entry.id == request or _may_list(entry, nodes, membership, forks))
    ]
    tip = parent.id if parent is not None else None
    listed.sort(key=lambda entry: (not is_answer(entry, tip), *entry.order_key))
    return tuple(entry.id for entry in listed)


def is_answer(entry: Entry, seal_id: EntryId | None) -> bool:
    """Say whether an entry is a GENERATION whose only parent is the seal."""
    return entry.header.kind == Kind.GENERATION and entry.header.parents == (seal_id,)


def uncovered_closure(log: Log, starts: Iterable[EntryId], parent: SealNode | None) -> set[EntryId]:
    """Return entries and their ancestors by parents, without those the chain lists or left out."""
    is_settled = parent.covers if parent is not None else None
    return reach(starts, lambda i: log.entries[i].header.parents, is_settled, meter=log.meter)


def _forks(log: Log, closure: set[EntryId]) -> dict[Lane, int]:
    """Return per forked lane the first seq that two entries of the closure share."""
    at: dict[tuple[Lane, int], EntryId] = {}
    forks: dict[Lane, int] = {}
    for entry_id in log.meter.turns(closure):
        header = log.entries[entry_id].header
        if at.setdefault((header.lane, header.seq), entry_id) != entry_id:
            forks[header.lane] = min(header.seq, forks.get(header.lane, header.seq))
    return forks


def _may_list(
    entry: Entry,
    nodes: Mapping[EntryId, SealNode],
    membership: Membership,
    forks: dict[Lane, int],
) -> bool:
    # Bodies don't matter: one that is missing or malformed here may be readable elsewhere.
    header = entry.header
    fork = forks.get(header.lane)
    if fork is not None and header.seq >= fork:
        return False
    if not membership.is_visible(entry):
        return False
    if header.kind != Kind.GENERATION:
        return True
    # Not context: a refusal, whose parent is the request; an answer to a void seal;
    # an answer that another host wrote under this seal.
    node = nodes.get(header.parents[0]) if len(header.parents) == 1 else None
    return node is not None and node.author == header.author
