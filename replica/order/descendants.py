"""The unsealed entries that descend from another (spec/03-order §3, ORD-10).

Pure.
"""

from typing import TYPE_CHECKING

from replica.ids import EntryId, Track
from replica.log import Kind, reach

if TYPE_CHECKING:
    from replica.order.tree import Order


def descendants(order: "Order", start: EntryId) -> set[EntryId]:
    """Return the entries that a way leads to from `start`, over unsealed ones that are no SEALs."""
    log, sealed = order.log, order.listed_by

    def is_passed_over(entry_id: EntryId) -> bool:
        if entry_id in sealed:
            return True
        header = log.entries[entry_id].header
        return header.track != Track.CONVERSATION or header.kind == Kind.SEAL

    return reach(log.children(start), log.children, is_passed_over, meter=log.meter)
