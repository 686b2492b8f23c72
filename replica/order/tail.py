"""The tail of a branch, and the parents of its next entry (spec/03-order §3, ORD-10).

Pure. No verdict depends on a tail: another replica may hold more or fewer of its
entries, and a seal states which of them became context.
"""

from collections.abc import Iterable

from replica.ids import EntryId
from replica.log import Entry, Log
from replica.order.descendants import descendants
from replica.order.eligible import is_tail_entry
from replica.order.late import LateMessages
from replica.order.meanwhile import Meanwhile
from replica.order.node import SealNode
from replica.order.open_tail import OpenTail
from replica.order.tree import Order
from replica.order.withdrawals import first_closing


def tail(order: Order, tip: SealNode | None) -> list[Entry]:
    """Return the unsealed entries for the next context of `tip`, in (lamport, id) order."""
    at = start(order, tip)
    behind = descendants(order, at)
    found = set(behind)
    if tip is not None:
        if at != tip.seal.request:
            found |= Meanwhile(order, tip.seal.request, behind).ids
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
    log, behind, meanwhile = order.log, descendants(order, begin), None
    if tip is not None and begin != tip.seal.request:
        meanwhile = Meanwhile(order, tip.seal.request, behind)
    ids = behind | meanwhile.ids if meanwhile is not None else behind
    found = [log.entries[begin], *_eligible(log, ids)]
    log.meter.count(len(found))
    return OpenTail(order, tip, begin, unsealed=behind, meanwhile=meanwhile, found=found)


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


def _order_key(entry: Entry) -> tuple[int, EntryId]:
    return entry.order_key
