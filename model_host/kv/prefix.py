"""The prefix index: all cached slabs, as chains that branch (spec/08-checkpoint §5). Pure.

Users (users.py) says who finds which node; Holds (holds.py) says which one is evicted next.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from model_host.kv.holds import Holds
from model_host.kv.lineage import ID_BYTES, Lineage
from model_host.kv.lookup import Conversation, Match, Node, name_of
from model_host.kv.slabs import Slabs
from model_host.kv.users import Users


class PrefixIndex:
    """All nodes of a pool.

    The ids of a running sequence's tail change with every step. They are indexed when
    somebody looks for a prefix, not before.
    """

    def __init__(self, slabs: Slabs) -> None:
        """Release the slabs of evicted nodes to `slabs`."""
        self.users = Users()
        self.holds = Holds(slabs)
        self._slabs = slabs
        self._nodes: dict[Node, None] = {}
        self._stale: dict[Node, None] = {}  # found under other ids than they hold
        self._serial = 0

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes)

    def find(self, user: Conversation, ids: Sequence[int]) -> tuple[Match, Match]:
        """Return the longest cached prefix of `ids`, and the longest the user has itself."""
        for node in list(self._stale):
            self.index(node)
        return self.users.find(user, Lineage(user.domain, ids))

    def peek(self, ids: Sequence[int], conversation: bytes, domain: bytes) -> tuple[int, int]:
        """Return the lengths of the prefix that a conversation has itself, and of the longest."""
        for node in list(self._stale):
            self.index(node)
        return self.users.peek(ids, conversation, domain)

    def covering(self, node: Node) -> Node | None:
        """Return another node of its only user that holds all tokens of a node."""
        self.index(node)
        return self.users.covering(node)

    def add(self, user: Conversation, parent: Node | None, slab: int, packed: bytes) -> Node:
        """Return a new node after `parent`, held by the one sequence that writes it."""
        self._serial += 1
        index = 0 if parent is None else parent.index + 1
        node = Node(parent, index, slab, self._serial, bytearray(packed), holds=1)
        if parent is not None:
            parent.children += 1
        self._nodes[node] = self._stale[node] = None
        self.users.use(node, user)
        return node

    def extend(self, node: Node, packed: bytes) -> None:
        """Add tokens to a node that a running sequence writes."""
        node.ids += packed
        self._stale[node] = None

    def cut(self, node: Node, tokens: int) -> None:
        """Keep the first `tokens` tokens, at least one, of a held node without children."""
        assert tokens and node.holds and not node.children, "only the end of a chain is cut"
        self.users.unindex(node)
        for keys in node.keys.values():
            keys.end = b""
        del node.ids[tokens * ID_BYTES :]
        self._stale[node] = None

    def index(self, node: Node) -> None:
        """Let a node be found under all ids it holds."""
        if node in self._stale:
            del self._stale[node]
            self.users.index(node)

    def evict(self, node: Node) -> None:
        """Forget an idle node without children, and free its slab."""
        assert node.is_cached and not node.holds and not node.children, "only idle ends go"
        users = list(node.users)
        for user in users:
            self.users.disuse(node, user)
        self._stale.pop(node, None)
        del self._nodes[node]
        node.is_cached = False
        if node.parent is not None:
            node.parent.children -= 1
        self.holds.removed(node)
        self._slabs.release(node.slab)
        for user in users:
            self.users.drop_if_unused(user)

    def evict_oldest(self) -> Node:
        """Evict the least recently used end of a chain; the caller knows that there is one."""
        node = self.holds.oldest()
        self.evict(node)
        return node

    def forget(self, user: Conversation) -> int:
        """Evict a conversation that nothing runs in; return the number of tokens it used.

        Nodes that other conversations use stay, and count all the same: the number must
        not show the others' existence.
        """
        assert not user.holders, "a running conversation is not evicted"
        for pin in [pin for pin in self.holds.pins if pin[0] is user]:
            self.holds.unpin(*pin)
        nodes = sorted(user.nodes, key=lambda node: -node.index)
        for node in nodes:
            if len(node.users) == 1:
                self.evict(node)
            else:
                self.users.disuse(node, user)
        self.users.drop_if_unused(user)
        return sum(node.tokens for node in nodes)

    def check_integrity(self) -> None:
        """Check all nodes, users and holds. Raises AssertionError."""
        children = Counter(node.parent for node in self._nodes)
        for node in self._nodes:
            name, parent = name_of(node), node.parent
            assert node.is_cached and node.tokens, f"{name}: empty or gone"
            assert node.children == children[node], f"{name}: {node.children} children"
            assert node.users, f"{name}: used by nobody"
            assert node.indexed == node.ids or node in self._stale, f"{name}: found by other ids"
            if parent is not None:
                assert parent in self._nodes and parent.is_full, f"{name}: parent gone or partial"
            assert node.index == (parent.index + 1 if parent else 0), f"{name}: {node.index}"
        used = {node for user in self.users.conversations.values() for node in user.nodes}
        assert used == self._nodes.keys(), "conversations use other nodes than there are"
        self.users.check_integrity()
        self.holds.check_integrity(self._nodes)
