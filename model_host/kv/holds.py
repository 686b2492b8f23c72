"""Cached slabs that are in use, and the order in which all others are evicted. Pure.

What a running sequence, a reader or a pin holds stays in memory (spec/08-checkpoint §5). Of the
rest, the least recently used end of a chain goes first.
"""

import heapq
from collections import Counter
from collections.abc import Collection

from model_host.kv.lookup import Conversation, Node, chain, name_of
from model_host.kv.slabs import Slabs


class Holds:
    """The holds on all nodes of a pool."""

    def __init__(self, slabs: Slabs) -> None:
        """Ask `slabs` for the memory of each node."""
        self.idle_groups = 0
        """Groups of 64 tokens that eviction can free."""
        self.idle_slabs = 0
        """Slabs that eviction can free."""
        self.pinned_slabs = 0
        self.pins: dict[tuple[Conversation, Node], float] = {}
        """Time until which each pinned chain is held, by its conversation and last node."""
        self._slabs = slabs
        self._queue: list[tuple[int, int, Node]] = []  # by last use; may hold former entries
        self._stamp = 0

    def hold(self, node: Node | None) -> None:
        """Keep a chain in memory."""
        for each in chain(node):
            if not each.holds:
                self._count_idle(each, -1)
            each.holds += 1

    def release(self, node: Node | None) -> None:
        """Undo one `hold`; the chain is now the most recently used."""
        self._stamp += 1
        for each in chain(node):
            each.holds -= 1
            each.stamp = self._stamp
            if not each.holds:
                self._count_idle(each, 1)
                self._enqueue(each)

    def oldest(self) -> Node:
        """Return the least recently used end of a chain that is idle; there must be one."""
        while True:
            stamp, _, node = heapq.heappop(self._queue)
            if _is_current(stamp, node):
                return node

    def removed(self, node: Node) -> None:
        """Note that a node is no longer cached, so its parent may be the end of a chain."""
        if not node.holds:
            self._count_idle(node, -1)
        if node.parent is not None:
            self._enqueue(node.parent)

    def pin(self, user: Conversation, node: Node, until: float) -> None:
        """Hold a chain until a time; of two times for one chain, the later one counts."""
        former = self.pins.get((user, node))
        if former is None:
            self.hold(node)
            for each in chain(node):
                self.pinned_slabs += not each.pins
                each.pins += 1
        self.pins[user, node] = until if former is None else max(former, until)

    def unpin(self, user: Conversation, node: Node) -> None:
        """Undo `pin`."""
        del self.pins[user, node]
        for each in chain(node):
            each.pins -= 1
            self.pinned_slabs -= not each.pins
        self.release(node)

    def _enqueue(self, node: Node) -> None:
        """Let a node be evicted in its turn, if it can be."""
        if not _is_current(node.stamp, node):
            return
        heapq.heappush(self._queue, (node.stamp, node.serial, node))
        if len(self._queue) > 2 * self.idle_slabs + 64:
            self._queue = [entry for entry in set(self._queue) if _is_current(entry[0], entry[2])]
            heapq.heapify(self._queue)

    def _count_idle(self, node: Node, sign: int) -> None:
        self.idle_groups += sign * self._slabs.groups(node.slab)
        self.idle_slabs += sign

    def check_integrity(self, nodes: Collection[Node]) -> None:
        """Check the counts and the queue against all nodes. Raises AssertionError."""
        idle = [node for node in nodes if not node.holds]
        groups = sum(self._slabs.groups(node.slab) for node in idle)
        assert (self.idle_groups, self.idle_slabs) == (groups, len(idle)), "idle memory"
        queued = set(self._queue)
        for node in idle:
            is_queued = (node.stamp, node.serial, node) in queued
            assert is_queued or node.children, f"{name_of(node)}: never evicted"
        pins: Counter[Node] = Counter()
        for user, last in self.pins:
            assert user in last.users, f"{name_of(last)}: pinned and not used"
            pins.update(chain(last))
        assert pins == {node: node.pins for node in nodes if node.pins}, "pins"
        assert self.pinned_slabs == len(pins), "pinned slabs"
        for node in nodes:
            assert node.pins <= node.holds, f"{name_of(node)}: pinned and not held"
            is_less = node.parent is None or node.holds <= node.parent.holds
            assert is_less, f"{name_of(node)}: held more than its parent"


def _is_current(stamp: int, node: Node) -> bool:
    """Say whether a node can be evicted, and was last used at `stamp`."""
    is_idle_end = node.is_cached and not node.holds and not node.children
    return is_idle_end and node.stamp == stamp
