"""CANCEL entries: the requests they end, and those they close (spec/03-order §3).

Pure. A visible CANCEL by any writer ends the generation. One by the requester or
an owner also *closes* the request: an entry that follows that CANCEL does not wait
for the answer, so a host that never answers blocks nobody.
"""

from replica.ids import EntryId, PublicKey
from replica.log import Entry, Membership


class Cancels:
    """The CANCEL entries of one log, by the request that is their only parent."""

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

    def closing_cancels(self, request: Entry, membership: Membership) -> tuple[EntryId, ...]:
        """Return the visible CANCELs by the requester or an owner, in (lamport, id) order."""
        found = [
            cancel
            for cancel in self._of.get(request.id, ())
            if membership.is_visible(cancel)
            and _may_close(cancel.header.author, request.header.author, membership)
        ]
        return tuple(cancel.id for cancel in sorted(found, key=lambda e: e.order_key))


def _may_close(author: PublicKey, requester: PublicKey, membership: Membership) -> bool:
    return author == requester or membership.has_owner_role(author)
