"""CANCEL entries: which requests they end, and which they close (spec/03-order §3).

Pure. A visible CANCEL by any writer ends the generation. One by the requester
or an owner also *closes* the request: whoever follows that CANCEL goes on
without the answer, so that a host which never answers holds nobody up.
"""

from replica.ids import EntryId, PublicKey
from replica.log import Entry, Membership, Role


class Cancels:
    """The CANCEL entries of one log, by the request each names as its only parent."""

    def __init__(self) -> None:
        """Start empty."""
        self._of: dict[EntryId, tuple[Entry, ...]] = {}

    def receive(self, entry: Entry) -> None:
        """Take an admitted CANCEL."""
        # One with several parents would end requests that it only comes after.
        if len(entry.header.parents) == 1:
            request = entry.header.parents[0]
            self._of[request] = (*self._of.get(request, ()), entry)

    def is_cancelled(self, request: EntryId, membership: Membership) -> bool:
        """Say whether a visible CANCEL names the request."""
        return any(membership.is_visible(cancel) for cancel in self._of.get(request, ()))

    def closing(self, request: Entry, membership: Membership) -> tuple[EntryId, ...]:
        """Return the visible CANCELs by the requester or an owner, in (lamport, id) order."""
        found = [
            cancel
            for cancel in self._of.get(request.id, ())
            if membership.is_visible(cancel)
            and _may_close(cancel.header.author, request.header.author, membership)
        ]
        return tuple(cancel.id for cancel in sorted(found, key=lambda e: e.order_key))


def _may_close(author: PublicKey, requester: PublicKey, membership: Membership) -> bool:
    return author == requester or Role.OWNER in membership.roles.get(author, ())
