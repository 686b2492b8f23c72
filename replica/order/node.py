"""The nodes of the tree of seals (spec/03-order §3)."""

from dataclasses import dataclass, field

from replica.ids import EntryId, PublicKey
from replica.log import Seal

FORKS_MAX = 64
"""Maps a lookup passes through at most; beyond, a fork copies them into one."""


@dataclass(slots=True)
class Coverage:
    """The entries a chain covers, shared by the nodes of an unforked chain.

    `depth_of` maps an entry to the depth of the seal that lists it or leaves it out. For a node at
    depth d, entries of depth d or less are covered. A fork begins a map of its own
    over that of its base, of which it sees the part up to the fork.
    """

    depth_of: dict[EntryId, int] = field(default_factory=dict)
    length: int = 0
    base: "Coverage | None" = None
    base_depth: int = -1
    forks: int = 0
    """Number of maps below this one."""

    def covers(self, entry_id: EntryId, depth: int) -> bool:
        """Say whether a seal at `depth` or less lists the entry or leaves it out."""
        coverage: Coverage | None = self
        while coverage is not None:
            listed = coverage.depth_of.get(entry_id)
            if listed is not None and listed <= depth:
                return True
            depth, coverage = min(depth, coverage.base_depth), coverage.base
        return False

    def forked_at(self, depth: int) -> "Coverage":
        """Return the map of a chain that leaves this one behind the seal at `depth`."""
        if self.forks < FORKS_MAX:
            return Coverage(base=self, base_depth=depth, forks=self.forks + 1)
        whole: dict[EntryId, int] = {}
        coverage: Coverage | None = self
        while coverage is not None:
            whole |= {i: d for i, d in coverage.depth_of.items() if d <= depth}
            depth, coverage = min(depth, coverage.base_depth), coverage.base
        return Coverage(whole)


@dataclass(slots=True)
class SealNode:
    """One seal that counts, in the tree."""

    id: EntryId
    seal: Seal
    author: PublicKey
    parent: "SealNode | None"
    depth: int
    coverage: Coverage
    withdrawn: frozenset[EntryId] = frozenset()
    """The messages that this seal leaves out, since they were withdrawn."""
    generation: EntryId | None = None
    _jump: "SealNode | None" = field(init=False, repr=False, compare=False)
    """An ancestor by which any other is reached in O(log depth); None for the first seal."""

    def __post_init__(self) -> None:
        """Choose the jump: steps grow in powers of two, as in a skew-binary list."""
        parent = self.parent
        if parent is None:
            self._jump = None
            return
        near = parent._jump or parent
        far = near._jump or near
        doubles = parent.depth - near.depth == near.depth - far.depth
        self._jump = far if doubles else parent

    def extends(self, node: "SealNode") -> bool:
        """Say whether `node` is in the chain of this seal."""
        at = self
        while at.depth > node.depth:
            assert at.parent is not None, "only the first seal has none, at depth 0"
            assert at._jump is not None, "only the first seal has none"
            at = at._jump if at._jump.depth >= node.depth else at.parent
        return at is node

    def covers(self, entry_id: EntryId) -> bool:
        """Say whether the chain up to and including this seal lists `entry_id` or left it out."""
        return self.coverage.covers(entry_id, self.depth)

    def lists(self, entry_id: EntryId) -> bool:
        """Say whether this seal itself lists `entry_id`."""
        is_settled = self.coverage.depth_of.get(entry_id) == self.depth
        return is_settled and entry_id not in self.withdrawn

    def lists_answer_of(self, parent: "SealNode") -> bool:
        """Say whether this seal lists the answer of the seal it extends."""
        return parent.generation is not None and self.lists(parent.generation)

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
    # If a sibling has extended the shared map already, the child begins its own over it.
    return shared if shared.length == parent.depth + 1 else shared.forked_at(parent.depth)
