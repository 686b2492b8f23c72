"""Cached pages that are read over several steps, and that nothing keeps in memory. Pure.

A checkpoint is written while other runs compute, and the conversation goes on. Holding its
pages meanwhile would take memory from runs, so each read checks that they are still there
(spec/08-checkpoint §3).
"""

from collections.abc import Callable

from model_host.errors import CheckpointDropped
from model_host.kv.lineage import ID_BYTES, Lineage
from model_host.kv.lookup import Match, Node, chain
from model_host.kv.memory import SLAB_TOKENS, Bytes, SlabMemory


class UnpinnedSource:
    """A PageSource of the cached prefix of a context."""

    def __init__(self, find: Callable[[], Match], lineage: Lineage, memory: SlabMemory) -> None:
        """Read the tokens of `lineage`; `find` looks for their prefix in the cache."""
        self._find = find
        self._packed = lineage.packed
        self._memory = memory
        self._nodes: list[Node] = []
        found = find()
        self._follow(found)
        self.tokens = found.tokens
        """The number of positions that were cached at first."""

    @property
    def bytes_per_token(self) -> int:
        """Return the bytes of one position over all layers."""
        return self._memory.bytes_per_token

    def read(self, start: int, stop: int) -> Bytes:
        """Copy positions of one group, as the bytes of [L, 2, H_kv, stop - start, D].

        Raises CheckpointDropped if they are no longer cached.
        """
        node = self._node(start, stop)
        if node is None:  # it may have been merged with another one of the same tokens
            self._follow(self._find())
            node = self._node(start, stop)
        if node is None:
            raise CheckpointDropped
        return self._memory.read(node.slab, start - node.start, stop - node.start)

    def _follow(self, found: Match) -> None:
        self._nodes = chain(found.node)

    def _node(self, start: int, stop: int) -> Node | None:
        """Return the node that holds the positions, after the same tokens as at first."""
        index = start // SLAB_TOKENS
        if index >= len(self._nodes):
            return None
        node = self._nodes[index]
        wanted = self._packed[node.start * ID_BYTES : stop * ID_BYTES]
        # Its parents are cached as long as it is, and full ones never change.
        return node if node.is_cached and node.ids.startswith(wanted) else None
