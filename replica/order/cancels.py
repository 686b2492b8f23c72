"""CANCEL entries: the requests they end, those they close, and messages (spec/03-order §3).

Pure. A visible CANCEL by any writer ends the generation. One by the requester or
an owner also *closes* the request: an entry that follows that CANCEL does not wait
for the answer, so a host that never answers blocks nobody. One of a message, by its author
or an owner, *withdraws* it: no seal whose request follows that CANCEL lists the message.
"""

from collections.abc import Set
from typing import TYPE_CHECKING

from replica.ids import EntryId
from replica.log import Entry, Kind, Log, Membership

if TYPE_CHECKING:
    from replica.order.tree import Order


def is_withdrawal(log: Log, entry: Entry) -> bool:
    """Say whether an entry is a CANCEL whose only parent is a message."""
    header = entry.header
    if header.kind != Kind.CANCEL or len(header.parents) != 1:
        return False
    return log.entries[header.parents[0]].header.kind == Kind.MESSAGE


def has_effect(cancel: Entry, ended: Entry, membership: Membership) -> bool:
    """Say whether a CANCEL closes its request or withdraws its message, under a membership."""
    author = cancel.header.author
    may_end = author == ended.header.author or membership.has_owner_role(author)
    return may_end and membership.is_visible(cancel)


def withdrawn(log: Log, closure: Set[EntryId], membership: Membership) -> set[EntryId]:
    """Return the messages of a closure that CANCELs in it withdraw, under a membership."""
    found = set[EntryId]()
    for entry in map(log.entries.__getitem__, log.meter.turns(closure)):
        if is_withdrawal(log, entry):
            (message,) = entry.header.parents
            # One that the chain settled before is not in the closure, and stays as it is.
            if message in closure and has_effect(entry, log.entries[message], membership):
                found.add(message)
    return found


def is_withdrawn(order: "Order", entry_id: EntryId) -> bool:
    """Say whether an entry is a message that was withdrawn, and that no seal lists."""
    if order.log.entries[entry_id].header.kind != Kind.MESSAGE or entry_id in order.listed_by:
        return False
    return bool(order.closing_cancels(entry_id))


class Cancels:
    """The CANCEL entries of one log, by the request or message that is their only parent."""

    def __init__(self) -> None:
        """Start empty."""
        self._of: dict[EntryId, tuple[Entry, ...]] = {}

    def receive(self, entry: Entry) -> None:
        """Add an admitted CANCEL."""
        # A CANCEL with several parents would end requests that it merely follows.
        if len(entry.header.parents) == 1:
            request = entry.header.parents[0]
            self._of[request] = (*self._of.get(request, ()), entry)

    def is_cancelled(self, request: EntryId, membership: Membership) -> bool:
        """Say whether a visible CANCEL names the request."""
        return any(membership.is_visible(cancel) for cancel in self._of.get(request, ()))

    def is_named(self, entry_id: EntryId) -> bool:
        """Say whether a CANCEL, visible or void, has the entry as its only parent."""
        return entry_id in self._of

    def closing_cancels(self, request: Entry, membership: Membership) -> tuple[EntryId, ...]:
        """Return the visible CANCELs by the author or an owner, in (lamport, id) order."""
        found = [
            cancel
            for cancel in self._of.get(request.id, ())
            if has_effect(cancel, request, membership)
        ]
        return tuple(cancel.id for cancel in sorted(found, key=lambda e: e.order_key))
