"""CANCEL entries: the requests they end, those they close, and messages (spec/03-order §3).

Pure. A visible CANCEL by any writer ends the generation. One by the requester or
an owner also *closes* the request: an entry that follows that CANCEL does not wait
for the answer, so a host that never answers blocks nobody. One of a message, by its author
or an owner, *withdraws* it: no seal whose request follows that CANCEL lists the message.
"""

from bisect import insort
from collections.abc import Iterator, Set

from replica.ids import EntryId, PublicKey
from replica.log import Entry, Kind, Log, Membership


def is_withdrawal(log: Log, entry: Entry) -> bool:
    """Say whether an entry is a CANCEL whose only parent is a message."""
    header = entry.header
    if header.kind != Kind.CANCEL or len(header.parents) != 1:
        return False
    return log.entries[header.parents[0]].header.kind == Kind.MESSAGE


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


def has_effect(cancel: Entry, ended: Entry, membership: Membership) -> bool:
    """Say whether a CANCEL closes its request or withdraws its message, under a membership."""
    return may_end(cancel.header.author, ended, membership) and membership.is_visible(cancel)


def may_end(author: PublicKey, ended: Entry, membership: Membership) -> bool:
    """Say whether a CANCEL of a key would close a request or withdraw a message."""
    return author == ended.header.author or membership.has_owner_role(author)


class Cancels:
    """The CANCEL entries of one log, by the request or message that is their only parent.

    Those of one author are sorted, so that many by one key cost no pass over all.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._of: dict[EntryId, dict[PublicKey, list[tuple[tuple[int, EntryId], Entry]]]] = {}
        self.withdraws = False
        """Whether one of them names a message."""

    def receive(self, entry: Entry) -> None:
        """Add an admitted CANCEL."""
        # A CANCEL with several parents would end requests that it merely follows.
        if len(entry.header.parents) == 1:
            by_author = self._of.setdefault(entry.header.parents[0], {})
            insort(by_author.setdefault(entry.header.author, []), (entry.order_key, entry))

    def is_cancelled(self, request: EntryId, membership: Membership) -> bool:
        """Say whether a visible CANCEL names the request."""
        lists = self._of.get(request, {}).values()
        return any(membership.is_visible(cancel) for of in lists for _, cancel in of)

    def authors(self, entry_id: EntryId) -> Set[PublicKey]:
        """Return the authors of the CANCELs, visible or void, whose only parent is the entry."""
        return self._of.get(entry_id, {}).keys()

    def first_closing(self, ended: Entry, membership: Membership) -> EntryId | None:
        """Return the first visible CANCEL by the author or an owner, in (lamport, id) order."""
        firsts = [
            next((key for key, cancel in of if membership.is_visible(cancel)), None)
            for author, of in self._of.get(ended.id, {}).items()
            if may_end(author, ended, membership)
        ]
        return min((key for key in firsts if key is not None), default=(0, None))[1]

    def closing_cancels(self, ended: Entry, membership: Membership) -> tuple[EntryId, ...]:
        """Return the visible CANCELs by the author or an owner, in (lamport, id) order."""
        return tuple(entry_id for _, entry_id in sorted(self._closing(ended, membership)))

    def _closing(self, ended: Entry, membership: Membership) -> Iterator[tuple[int, EntryId]]:
        for author, of in self._of.get(ended.id, {}).items():
            if may_end(author, ended, membership):
                yield from (key for key, cancel in of if membership.is_visible(cancel))
