"""Which entries may be in a tail, and which requests may still be answered (ORD-10).

Pure.
"""

from typing import TYPE_CHECKING

from replica.log import CONTEXT_KINDS, Conflict, Entry, Kind, Log
from replica.order.withdrawals import first_closing

if TYPE_CHECKING:
    from replica.order.tree import Order


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
    return is_allowed and membership.is_visible(entry) and log.body(entry.id) is not None


def is_open(order: "Order", entry: Entry) -> bool:
    """Say whether an unsealed entry is a request that may still be answered."""
    # Only a request that counts: another replica need not hold one behind a cut.
    is_request = entry.header.kind == Kind.REQUEST and is_tail_entry(order.log, entry)
    ended = entry.id in order.refusal_of or (
        is_request and first_closing(order, entry.id) is not None
    )
    return is_request and not ended


def has_branch(order: "Order", request: Entry) -> bool:
    """Say whether an unsealed request opens a branch of its own, or still may be answered."""
    if not is_tail_entry(order.log, request):
        return False
    return request.header.conflict == Conflict.FORK or is_open(order, request)
