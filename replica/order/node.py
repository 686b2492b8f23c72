"""The nodes of the tree of seals (spec/03-order §3)."""

from dataclasses import dataclass, field

from replica.ids import EntryId
from replica.log import Seal


@dataclass(slots=True)
class Coverage:
    """The entries a chain covers, shared by the nodes of an unforked chain.

    `depth_of` maps an entry to the depth of the seal that lists it. For a node at
    depth d, entries of depth d or less are covered. A fork copies the map.
    """

    depth_of: dict[EntryId, int] = field(default_factory=dict)
    length: int = 0


@dataclass(slots=True)
class SealNode:
    """One seal that counts, in the tree."""

    id: EntryId
    seal: Seal
    author: bytes
    parent: "SealNode | None"
    depth: int
    coverage: Coverage
    children: list["SealNode"] = field(default_factory=list)
    generation: EntryId | None = None

    def covers(self, entry_id: EntryId) -> bool:
        """Say whether the chain up to and including this seal lists `entry_id`."""
        depth = self.coverage.depth_of.get(entry_id)
        return depth is not None and depth <= self.depth

    def lists_answer_of(self, parent: "SealNode") -> bool:
        """Say whether this seal lists the answer of the seal it extends."""
        return parent.generation in self.seal.entries

    def chain(self) -> list["SealNode"]:
        """Return the chain from the first seal to this one."""
        nodes, node = [], self
        while True:
            nodes.append(node)
            if node.parent is None:
                return nodes[::-1]
            node = node.parent


def coverage_up_to(parent: SealNode | None) -> Coverage:
    """Return the map that a child of `parent` extends."""
    if parent is None:
        return Coverage()
    shared = parent.coverage
    if shared.length == parent.depth + 1:
        return shared
    # A sibling has extended the shared map already: copy the part up to the fork.
    return Coverage({i: d for i, d in shared.depth_of.items() if d <= parent.depth})
