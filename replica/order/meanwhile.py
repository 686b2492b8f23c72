"""The entries written behind a sealed request before its answer came (spec/03-order §3, ORD-10).

Pure. They belong to the tail of the answer, except where another request waits for that
answer: its own conflict rule decides about the entries it follows, and those that follow it.
"""

from collections.abc import Iterable, Set
from typing import TYPE_CHECKING
from weakref import proxy

from replica.ids import EntryId
from replica.log import Entry, Kind, reach
from replica.order.descendants import descendants
from replica.order.eligible import is_open

if TYPE_CHECKING:
    from replica.order.tree import Order

_DECISIVE = frozenset({Kind.REQUEST, Kind.GENERATION, Kind.CANCEL})
"""Kinds of which an entry may wait, or end what waits."""


class Meanwhile:
    """The unsealed entries behind one sealed request, kept while entries come."""

    def __init__(self, order: "Order", request: EntryId, behind_answer: Set[EntryId]) -> None:
        """Find them. No request of `behind_answer`, the entries that follow the answer, waits."""
        self._order: Order = proxy(order)  # it may be held by what this order refers to
        self._request = request
        self.behind = descendants(order, request)
        """All that descend from the request."""
        entries = order.log.entries
        asked = (entries[i] for i in self.behind - behind_answer)
        waiting = [entry.id for entry in asked if is_open(order, entry)]
        before = reach(waiting, self._parents, meter=order.log.meter)
        self._waiting = reach(waiting, self._children, meter=order.log.meter)
        """The requests that wait, and what descends from them."""
        self.ids = self.behind - before - self._waiting
        """Those that no waiting request follows, and that follow none."""

    def _parents(self, entry_id: EntryId) -> Iterable[EntryId]:
        return (p for p in self._order.log.entries[entry_id].header.parents if p in self.behind)

    def _children(self, entry_id: EntryId) -> Iterable[EntryId]:
        return (c for c in self._order.log.children(entry_id) if c in self.behind)

    def is_followed_by(self, entry: Entry) -> bool:
        """Say whether an unsealed entry that is no SEAL descends from the request."""
        return any(p == self._request or p in self.behind for p in entry.header.parents)

    def receive(self, entry: Entry) -> bool:
        """Add an entry that descends from the request; return False to find all anew."""
        if entry.header.kind in _DECISIVE:
            return False
        self.behind.add(entry.id)
        if self._waiting.isdisjoint(entry.header.parents):
            self.ids.add(entry.id)
        else:
            self._waiting.add(entry.id)
        return True
