"""The CANCELs that keep withdrawn messages out of what comes next (spec/03-order §3, ORD-10).

Pure. A message may be reached by what somebody else wrote, who did not have its CANCEL. So
whoever asks next follows the CANCEL of each message that is reached.
"""

from collections.abc import Iterable, Set
from typing import TYPE_CHECKING

from replica.ids import EntryId
from replica.log import Kind, reach
from replica.order.node import SealNode

if TYPE_CHECKING:
    from replica.order.tree import Order


def is_withdrawn(order: "Order", entry_id: EntryId) -> bool:
    """Say whether an entry is a message that was withdrawn, and that no seal lists."""
    if order.log.entries[entry_id].header.kind != Kind.MESSAGE or entry_id in order.listed_by:
        return False
    return entry_id in order.left_out or first_closing(order, entry_id) is not None


def first_closing(order: "Order", entry_id: EntryId) -> EntryId | None:
    """Return the first CANCEL that closes a request, or withdraws a message, for those of now."""
    return order.cancels.first_closing(order.log.entries[entry_id], order.log.membership)


def is_named(order: "Order", entry_id: EntryId) -> bool:
    """Say whether an entry is a message with a CANCEL, whether that has effect or not."""
    is_message = order.log.entries[entry_id].header.kind == Kind.MESSAGE
    return is_message and bool(order.cancels.authors(entry_id))


def with_withdrawals(
    order: "Order", parents: Iterable[EntryId], node: SealNode | None
) -> tuple[EntryId, ...]:
    """Return parents of a request on the branch of a seal, with the CANCELs that they lack.

    Of a message that they reach, and that was withdrawn by CANCELs of which they reach none, it
    is the first.
    """
    given = tuple(parents)
    if not order.cancels.withdraws:
        return given
    log, is_settled = order.log, node.covers if node is not None else None
    reached = reach(given, lambda i: log.entries[i].header.parents, is_settled, meter=log.meter)
    lacking = (missing(order, i, reached) for i in log.meter.turns(reached) if is_named(order, i))
    return (*given, *sorted(cancel for cancel in lacking if cancel is not None))


def missing(order: "Order", message: EntryId, reached: Set[EntryId]) -> EntryId | None:
    """Return the first CANCEL that withdraws a message, unless one that does is reached."""
    closing = order.closing_cancels(message)
    return next(iter(closing), None) if reached.isdisjoint(closing) else None
