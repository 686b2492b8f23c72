"""Cached slabs, and how the ones with the longest common prefix are found (spec/08-checkpoint §5).

Pure. A full slab is found by the lineage key at its end, one step per slab. Where no full
slab fits, all slabs that begin at the same key are sorted by their ids: the one with the
most ids in common is a neighbour of the ids looked for. So the numbers of conversations
and of branches don't matter, and a prefix is exact to the token.
"""

from bisect import bisect_left
from dataclasses import dataclass, field

from model_host.kv.lineage import ID_BYTES, Lineage, common_tokens
from model_host.kv.memory import SLAB_TOKENS

SLAB_ID_BYTES = SLAB_TOKENS * ID_BYTES


@dataclass(slots=True)
class Keys:
    """The lineage keys of a node in one sharing domain."""

    start: bytes
    """Key before the slab's first token."""
    end: bytes = b""
    """Key after the slab's last token; empty for a slab that is not full."""
    users: int = 0
    """Number of conversations of the domain that use the node."""


@dataclass(slots=True, eq=False)
class Node:
    """A cached slab: 512 positions, or fewer at the end of a chain."""

    parent: "Node | None"
    """The slab before, always full; None for the first of a chain."""
    index: int
    """Number of slabs before it."""
    slab: int
    serial: int
    """A number that no other node has."""
    ids: bytearray = field(default_factory=bytearray)
    """Packed ids of the tokens whose keys and values the slab holds."""
    users: "dict[Conversation, None]" = field(default_factory=dict)
    """Conversations that computed it or continued from it; they use the parent too."""
    keys: dict[bytes, Keys] = field(default_factory=dict)
    """Lineage keys, by the domain of a user."""
    indexed: bytes = b""
    """The ids under which it is found; a running sequence's last ones are added later."""
    children: int = 0
    holds: int = 0
    """Number of running sequences, readers and pins whose chains include it."""
    pins: int = 0
    """Number of pins among them."""
    stamp: int = 0
    """Order of last use."""
    is_cached: bool = True

    @property
    def tokens(self) -> int:
        """Return the number of positions the slab holds."""
        return len(self.ids) // ID_BYTES

    @property
    def start(self) -> int:
        """Return the position of the slab's first token in its context."""
        return self.index * SLAB_TOKENS

    @property
    def is_full(self) -> bool:
        """Say whether all 512 positions hold keys and values; they never change again then."""
        return len(self.ids) == SLAB_ID_BYTES


def chain(node: Node | None) -> list[Node]:
    """Return the nodes from the first of a context up to `node`."""
    nodes = []
    while node is not None:
        nodes.append(node)
        node = node.parent
    return nodes[::-1]


def name_of(node: Node) -> str:
    """Return a description of a node, for people."""
    return f"node {node.serial} (slab {node.slab}, {node.tokens} tokens)"


@dataclass(frozen=True, slots=True)
class Match:
    """The longest prefix found: the whole chain before `node`, and the first `common` of it."""

    node: Node | None
    common: int

    @property
    def tokens(self) -> int:
        """Return the length of the prefix in tokens."""
        return self.common + (self.node.start if self.node is not None else 0)


class Lookup:
    """Nodes by their lineage keys: all of a pool, or those that one conversation uses."""

    def __init__(self) -> None:
        """Start empty."""
        self._whole: dict[bytes, dict[Node, None]] = {}  # by the key at the end
        self._beginning: dict[bytes, list[tuple[bytes, int, Node]]] = {}  # by the key at the start

    def __len__(self) -> int:
        return sum(map(len, self._beginning.values()))

    def __contains__(self, entry: tuple[Node, Keys]) -> bool:
        node, keys = entry
        entries = self._beginning.get(keys.start, [])
        at = bisect_left(entries, (node.indexed, node.serial, node))
        is_whole = node in self._whole.get(keys.end, {})
        is_found = at < len(entries) and entries[at][2] is node
        return is_found and is_whole == (len(node.indexed) == SLAB_ID_BYTES)

    def add(self, node: Node, keys: Keys) -> None:
        """Let a node be found under its indexed ids."""
        entries = self._beginning.setdefault(keys.start, [])
        entry = (node.indexed, node.serial, node)
        entries.insert(bisect_left(entries, entry), entry)
        if len(node.indexed) == SLAB_ID_BYTES:
            self._whole.setdefault(keys.end, {})[node] = None

    def remove(self, node: Node, keys: Keys) -> None:
        """Let a node no longer be found; its indexed ids and keys are those it was added with."""
        entries = self._beginning[keys.start]
        at = bisect_left(entries, (node.indexed, node.serial, node))
        assert entries[at][2] is node, "a node is removed where it was added"
        del entries[at]
        if not entries:
            del self._beginning[keys.start]
        if len(node.indexed) == SLAB_ID_BYTES:
            whole = self._whole[keys.end]
            del whole[node]
            if not whole:
                del self._whole[keys.end]

    def whole(self, end: bytes) -> Node | None:
        """Return a full node whose key after its last token is `end`."""
        return next(iter(self._whole.get(end, ())), None)

    def covering(self, node: Node, keys: Keys) -> Node | None:
        """Return another node that holds all tokens of an indexed one, and perhaps more."""
        entries = self._beginning[keys.start]
        at = bisect_left(entries, (node.indexed, node.serial, node))
        for ids, _, other in entries[max(0, at - 1) : at + 2]:
            if other is not node and ids.startswith(node.indexed):
                return other
        return None

    def find(self, lineage: Lineage) -> Match:
        """Return the longest prefix of a lineage's tokens that nodes hold."""
        node, start = None, 0
        while start + SLAB_TOKENS <= len(lineage):
            found = self.whole(lineage.at(start + SLAB_TOKENS))
            if found is None:
                break
            node, start = found, start + SLAB_TOKENS
        wanted = lineage.packed[start * ID_BYTES : start * ID_BYTES + SLAB_ID_BYTES]
        closest, common = self._closest(lineage.at(start), wanted)
        if common:
            return Match(closest, common)
        return Match(node, SLAB_TOKENS if node is not None else 0)

    def _closest(self, start: bytes, wanted: bytes) -> tuple[Node | None, int]:
        """Return the node after `start` with the most first ids of `wanted`, and their number."""
        entries = self._beginning.get(start, [])
        at = bisect_left(entries, (wanted,))
        best, most = None, 0
        for ids, _, node in entries[max(0, at - 1) : at + 1]:
            common = common_tokens(ids, wanted, ID_BYTES)
            if common > most:
                best, most = node, common
        return best, most


@dataclass(slots=True, eq=False)
class Conversation:
    """A conversation with cached slabs."""

    key: bytes
    domain: bytes
    """Digest of the namespace under the salt of its sharing domain."""
    lookup: Lookup = field(default_factory=Lookup)
    """The nodes it uses, so that it can tell them from those of others."""
    nodes: dict[Node, None] = field(default_factory=dict)
    holders: int = 0
    """Number of its running sequences and readers."""
