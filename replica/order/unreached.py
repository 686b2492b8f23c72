"""The entries that no sealed request reaches (spec/03-order §3, ORD-10).

Pure. They are few in a long log: each seal removes those that its request follows.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING
from weakref import proxy

from replica.ids import EntryId, PublicKey, Track
from replica.log import Entry, Kind, Membership, reach
from replica.order.eligible import has_branch

if TYPE_CHECKING:
    from replica.order.tree import Order

_ENDING = frozenset({Kind.GENERATION, Kind.CANCEL})
"""Kinds of which an entry may end a request before it has a seal."""


class Unreached:
    """The covered entries of the conversation track that no request of a counting seal reaches.

    Seals that count are none of them. Whatever follows one of these entries is one of them.
    """

    def __init__(self, order: "Order") -> None:
        """Start empty."""
        self._order: Order = proxy(order)  # it refers to this, and is freed with it
        self._log = order.log
        self._entries: set[EntryId] = set()
        self.messages: dict[EntryId, None] = {}
        """The messages among them, in the order in which they were folded."""
        self.requests: dict[EntryId, None] = {}
        """The requests among them, likewise."""
        self.free: dict[EntryId, None] = {}
        """The messages that no request with a branch of its own reaches, since `claim`."""
        self.asking: set[EntryId] = set()
        """The requests that have a branch of their own, or still may, since `claim`."""
        self._claimed: set[EntryId] = set()
        self._new: list[EntryId] = []
        self._judged_by: Membership | None = None

    def __contains__(self, entry_id: object) -> bool:
        """Say whether an entry is one of them."""
        return entry_id in self._entries

    def add(self, entry: Entry) -> None:
        """Add a newly folded entry; one of another track is ignored."""
        header = entry.header
        if header.track != Track.CONVERSATION:
            return
        self._entries.add(entry.id)
        if header.kind == Kind.MESSAGE:
            self.messages[entry.id] = self.free[entry.id] = None
        elif header.kind == Kind.REQUEST:
            self.requests[entry.id] = None
            self._new.append(entry.id)
        elif header.kind in _ENDING and not self.asking.isdisjoint(header.parents):
            self._judged_by = None

    def remove(self, entry_id: EntryId) -> None:
        """Remove an entry that a sealed request reaches, if it is one of them."""
        self._entries.discard(entry_id)
        self._claimed.discard(entry_id)
        self.asking.discard(entry_id)
        for kept in (self.messages, self.requests, self.free):
            kept.pop(entry_id, None)

    def drop(self, entry_id: EntryId) -> None:
        """Remove an entry that is covered no longer; what it claimed may be free."""
        self.remove(entry_id)
        self._judged_by = None

    def claim(self) -> None:
        """Bring `free` and `asking` up to date; new requests alone cost a walk, mostly."""
        if self._judged_by is not self._log.membership:
            self._judged_by = self._log.membership
            self.asking.clear()
            self._claimed.clear()
            self.free, self._new = dict(self.messages), list(self.requests)
        new, self._new = self._new, []
        for request in self._log.meter.turns(new):
            if request in self.requests and has_branch(self._order, self._log.entries[request]):
                self.asking.add(request)
                stop = self._claimed.__contains__
                found = reach([request], self.parents, stop, meter=self._log.meter)
                self._claimed |= found
                for entry_id in found:
                    self.free.pop(entry_id, None)

    def parents(self, entry_id: EntryId) -> Iterable[EntryId]:
        """Return the parents of an entry that are among them."""
        return (p for p in self._log.entries[entry_id].header.parents if p in self._entries)

    def reach(self, request: EntryId, listed: Iterable[EntryId]) -> None:
        """Remove a sealed request with all that it reaches, and the entries that its seal lists."""
        todo = [request]
        while todo:
            at = todo.pop()
            self._log.meter.turn()
            if at in self._entries:
                self.remove(at)
                todo.extend(self._log.entries[at].header.parents)
        for entry_id in self._log.meter.turns(listed):  # an answer need not be reached
            self.remove(entry_id)

    def authors(self) -> set[PublicKey]:
        """Return their authors."""
        return {self._log.entries[i].header.author for i in self._entries}
