"""The tail of a branch, and the parents of its next entry (spec/03-order §3, ORD-10).

Pure. No verdict depends on a tail: another replica may hold more or fewer of its
entries, and a seal states which of them became context.
"""

from collections.abc import Iterable

from replica.ids import EntryId, Track
from replica.log import Entry, Kind, Log, reach
from replica.order.eligible import is_open, is_tail_entry
from replica.order.late import LateMessages
from replica.order.node import SealNode
from replica.order.open_tail import OpenTail
from replica.order.tree import Order
from replica.order.withdrawals import first_closing


def tail(order: Order, tip: SealNode | None) -> list[Entry]:
    """Return the unsealed entries for the next context of `tip`, in (lamport, id) order."""
    at = start(order, tip)
    behind = _unsealed_behind(order, at)
    found = set(behind)
    if tip is not None:
        if at != tip.seal.request:
            found |= _written_meanwhile(order, tip.seal.request, behind)
        found |= LateMessages(order, tip, behind).ids
    return sorted(_eligible(order.log, found), key=_order_key)


def late_messages(order: Order, tip: SealNode | None, behind: set[EntryId]) -> list[Entry]:
    """Return the late messages of a tip, or of one whose start the entries `behind` will follow."""
    return list(map(order.log.entries.__getitem__, LateMessages(order, tip, behind).ids))


def frontier(order: Order, tip: SealNode | None) -> tuple[EntryId, ...]:
    """Return the parents for the next entry on `tip`'s branch, ascending; at most 64."""
    begin, kept = start(order, tip), order.open_tail
    if kept is None or not kept.is_of(tip, begin):
        kept = order.open_tail = _open_tail(order, tip, begin)
    return kept.ends()


def _open_tail(order: Order, tip: SealNode | None, begin: EntryId) -> OpenTail:
    log, behind = order.log, _unsealed_behind(order, begin)
    meanwhile, behind_request = set[EntryId](), None
    if tip is not None and begin != tip.seal.request:
        behind_request = _unsealed_behind(order, tip.seal.request)
        meanwhile = _written_meanwhile(order, tip.seal.request, behind)
    found = [log.entries[begin], *_eligible(log, behind | meanwhile)]
    order.log.meter.count(len(found))
    return OpenTail(order, tip, begin, unsealed=behind, behind_request=behind_request, found=found)


def _eligible(log: Log, found: Iterable[EntryId]) -> list[Entry]:
    entries = map(log.entries.__getitem__, log.meter.turns(found))
    return [entry for entry in entries if is_tail_entry(log, entry)]


def start(order: Order, tip: SealNode | None) -> EntryId:
    """Return the entry that the next one on `tip`'s branch follows in any case.

    It is the answer, or without one a CANCEL that closes the request, so that the
    branch can continue, or the request itself.
    """
    if tip is None:
        return EntryId(order.log.conversation)
    if tip.generation is not None:
        return tip.generation
    return first_closing(order, tip.seal.request) or tip.seal.request


def _unsealed_behind(order: Order, start: EntryId) -> set[EntryId]:
    log, sealed = order.log, order.listed_by

    def is_passed_over(entry_id: EntryId) -> bool:
        if entry_id in sealed:
            return True
        header = log.entries[entry_id].header
        return header.track != Track.CONVERSATION or header.kind == Kind.SEAL

    return reach(log.children(start), log.children, is_passed_over, meter=log.meter)


def _written_meanwhile(order: Order, request: EntryId, follow_answer: set[EntryId]) -> set[EntryId]:
    """Return the unsealed entries behind a request, written before its answer came.

    A request that waits for the answer is left out, with the entries it follows and those
    that follow it: its own conflict rule decides about them. One in `follow_answer`, the
    entries behind the answer, does not wait.
    """
    unsealed = _unsealed_behind(order, request)
    log = order.log
    asked = (log.entries[i] for i in unsealed - follow_answer)
    waiting = [entry.id for entry in asked if is_open(order, entry)]

    def parents(entry_id: EntryId) -> Iterable[EntryId]:
        return (p for p in log.entries[entry_id].header.parents if p in unsealed)

    def children(entry_id: EntryId) -> Iterable[EntryId]:
        return (c for c in log.children(entry_id) if c in unsealed)

    before = reach(waiting, parents, meter=log.meter)
    behind = reach(waiting, children, meter=log.meter)
    return unsealed - before - behind


def _order_key(entry: Entry) -> tuple[int, EntryId]:
    return entry.order_key
