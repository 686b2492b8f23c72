"""The late messages of a tip (spec/03-order §3, ORD-10).

Pure. A message may arrive after a request beside it was sealed: its author did not have
the request, and the request does not follow the message. It follows entries of the chain
only, and is kept in the tail until a request follows it.
"""

from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import TYPE_CHECKING
from weakref import proxy

from replica.ids import EntryId
from replica.log import Entry, Kind, reach
from replica.order.eligible import has_branch, is_tail_entry
from replica.order.node import SealNode

if TYPE_CHECKING:
    from replica.order.tree import Order


class _Way(Enum):
    """What the ancestors of an entry say about it, up to the chain."""

    BRANCH = auto()
    """A way of unsealed entries leads to it from the chain."""
    NONE = auto()
    """No such way leads to it."""
    APART = auto()
    """It reaches a request or a seal apart, or is one."""


class LateMessages:
    """The late messages of a tip, kept while entries come; without a tip the chain is empty."""

    def __init__(self, order: "Order", tip: SealNode | None, behind: set[EntryId]) -> None:
        """Find them. `behind` are the entries that descend from the start, read as they grow."""
        self._order: Order = proxy(order)  # it refers to this, and is freed with it
        self._tip, self._behind = tip, behind
        self._ways: dict[EntryId, _Way] = {}
        self.ids: set[EntryId] = set()
        """The late messages that do not descend from the start."""
        self._followed: set[EntryId] = set()
        """Entries that a request apart is known to reach; none of these is late."""
        self.ids.update(i for i in self._candidates() if i not in behind and self._is_late(i))
        order.log.meter.count(len(self._ways) + len(self._followed))

    def receive(self, entry: Entry) -> bool:
        """Add an entry that does not descend from the start; return False to compute anew."""
        order, kind = self._order, entry.header.kind
        is_ending = kind in (Kind.CANCEL, Kind.GENERATION)
        if is_ending and any(p in order.requests for p in entry.header.parents):
            return False  # a request may be apart no longer
        if entry.id not in order.unreached:
            return True
        if kind == Kind.REQUEST and self._is_apart(entry.id):
            asked = self._unreached([entry.id], self._followed.__contains__)
            self._followed |= asked
            return self.ids.isdisjoint(asked)
        if kind == Kind.MESSAGE and self._is_late(entry.id):
            self.ids.add(entry.id)
        return True

    def receive_seal(self, node: SealNode) -> bool:
        """Note a seal that counts; return False if the late messages have to be found anew."""
        listed = (node.seal.request, *node.seal.entries)
        if any(self._ways.get(i, _Way.APART) is not _Way.APART for i in listed):
            return False
        return all(i in self._order.unreached for i in self.ids)

    def _candidates(self) -> Iterable[EntryId]:
        """Return the unreached messages that no request apart reaches."""
        unreached, behind = self._order.unreached, self._behind
        unreached.claim()
        own = self._unreached(unreached.asking & behind)
        if own <= behind:
            return unreached.free
        # A request that follows the start reaches late messages, and is not apart.
        self._followed = self._unreached(unreached.asking - behind)
        return (i for i in unreached.messages if i not in self._followed)

    def _unreached(
        self, start: Iterable[EntryId], stop: Callable[[EntryId], bool] | None = None
    ) -> set[EntryId]:
        """Return the unreached entries that these follow, with these."""
        order = self._order
        return reach(start, order.unreached.parents, stop, meter=order.log.meter)

    def _is_apart(self, request: EntryId) -> bool:
        order = self._order
        return request not in self._behind and has_branch(order, order.log.entries[request])

    def _is_late(self, message: EntryId) -> bool:
        log = self._order.log
        return is_tail_entry(log, log.entries[message]) and self._way(message) is _Way.BRANCH

    def _way(self, start: EntryId) -> _Way:
        """Return the way to an entry; each entry up to the chain is looked at once."""
        todo = [start]
        while todo:
            self._order.log.meter.turn()
            at = todo[-1]
            if at not in self._ways:
                end = self._end(at)
                parents = self._order.log.entries[at].header.parents if end is None else ()
                unknown = [p for p in parents if p not in self._ways]
                if unknown:
                    todo += unknown
                    continue
                self._ways[at] = end or self._through(at, parents)
            todo.pop()
        return self._ways[start]

    def _end(self, at: EntryId) -> _Way | None:
        """Return the way to an entry whose parents don't matter, None for any other."""
        order, tip = self._order, self._tip
        if at == EntryId(order.log.conversation) or (tip is not None and tip.covers(at)):
            return _Way.BRANCH
        node = order.nodes.get(at)
        if node is not None:
            return _Way.BRANCH if tip is not None and tip.extends(node) else _Way.APART
        is_sealed = at in order.seal_of
        is_asked = at in order.requests and self._is_apart(at)
        return _Way.APART if is_sealed or is_asked else None

    def _through(self, at: EntryId, parents: Iterable[EntryId]) -> _Way:
        ways = {self._ways[p] for p in parents}
        if _Way.APART in ways:
            return _Way.APART
        is_sealed = at in self._order.listed_by  # by a seal of another branch
        return _Way.BRANCH if _Way.BRANCH in ways and not is_sealed else _Way.NONE
