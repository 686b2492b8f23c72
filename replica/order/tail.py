"""The tail of a branch, and the parents of its next entry (spec/03-order §3, ORD-10).

Pure. No verdict depends on a tail: another replica may hold more or fewer of its
entries, and a seal states which of them became context.
"""

from collections.abc import Iterable

from replica.ids import EntryId, Track
from replica.limits import PARENTS_MAX
from replica.log import CONTEXT_KINDS, Entry, Kind, Log, reach
from replica.order.node import SealNode
from replica.order.tree import Order


def tail(order: Order, tip: SealNode | None) -> list[Entry]:
    """Return the unsealed entries that follow `tip`, in (lamport, id) order."""
    at = start(order, tip)
    unsealed = _unsealed_behind(order, at)
    if tip is not None and at != tip.seal.request:
        unsealed |= _written_meanwhile(order, tip.seal.request)
    entries = (
        e for e in map(order.log.entries.__getitem__, unsealed) if is_tail_entry(order.log, e)
    )
    return sorted(entries, key=_order_key)


def frontier(order: Order, tip: SealNode | None) -> tuple[EntryId, ...]:
    """Return the parents for the next entry on `tip`'s branch, ascending; at most 64."""
    at = order.log.entries[start(order, tip)]
    return ends(order.log, [at, *tail(order, tip)])


def ends(log: Log, found: Iterable[Entry]) -> tuple[EntryId, ...]:
    """Return the ids of those entries that no other of them follows, ascending: the last 64."""
    entries = {entry.id: entry for entry in found}
    first = min((e.header.lamport for e in entries.values()), default=0)

    def follow(at: EntryId) -> tuple[EntryId, ...]:
        header = log.entries[at].header
        # The walk stops at any of them, whose own parents are walked from too, and below the first.
        return header.parents if at not in entries and header.lamport > first else ()

    followed = reach((p for e in entries.values() for p in e.header.parents), follow)
    last = sorted((e for e in entries.values() if e.id not in followed), key=_order_key)
    return tuple(sorted(e.id for e in last[-PARENTS_MAX:]))


def is_tail_entry(log: Log, entry: Entry) -> bool:
    """Say whether an entry belongs to a tail: visible, readable, by a writer or a host.

    Kinds that any role may write are left out, or a reader could fill the parents of
    the next entry.
    """
    header, membership = entry.header, log.membership
    if header.kind == Kind.JOIN:
        is_allowed = membership.may_write(header.author, Kind.MESSAGE)
    else:
        is_allowed = header.kind in CONTEXT_KINDS
    return is_allowed and membership.is_visible(entry) and not log.is_malformed(entry.id)


def start(order: Order, tip: SealNode | None) -> EntryId:
    """Return the entry that the next one on `tip`'s branch follows in any case.

    It is the answer, or without one a CANCEL that closes the request, so that the
    branch can continue, or the request itself.
    """
    if tip is None:
        return EntryId(order.log.conversation)
    if tip.generation is not None:
        return tip.generation
    closing = order.closing_cancels(tip.seal.request)
    return closing[0] if closing else tip.seal.request


def _unsealed_behind(order: Order, start: EntryId) -> set[EntryId]:
    log = order.log
    sealed = {i for node in order.nodes.values() for i in node.seal.entries}

    def is_passed_over(entry_id: EntryId) -> bool:
        if entry_id in sealed:
            return True
        header = log.entries[entry_id].header
        return header.track != Track.CONVERSATION or header.kind == Kind.SEAL

    return reach(log.children(start), log.children, is_passed_over)


def _written_meanwhile(order: Order, request: EntryId) -> set[EntryId]:
    """Return the unsealed entries behind a request, written before its answer came.

    Entries connected to an open request are left out: the conflict rule of that
    request decides about them.
    """
    unsealed = _unsealed_behind(order, request)
    entries = order.log.entries

    def neighbours(entry_id: EntryId) -> Iterable[EntryId]:
        both = (*entries[entry_id].header.parents, *order.log.children(entry_id))
        return (i for i in both if i in unsealed)

    queued = reach((i for i in unsealed if _is_open(order, entries[i])), neighbours)
    return unsealed - queued


def _is_open(order: Order, entry: Entry) -> bool:
    """Say whether an unsealed entry is a request that may still be answered."""
    # Only a request that counts: another replica need not hold one behind a cut.
    is_request = entry.header.kind == Kind.REQUEST and is_tail_entry(order.log, entry)
    ended = entry.id in order.refusal_of or bool(is_request and order.closing_cancels(entry.id))
    return is_request and not ended


def _order_key(entry: Entry) -> tuple[int, EntryId]:
    return entry.order_key
