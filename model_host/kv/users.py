"""Who uses which cached slab, and under which keys it is found (spec/08-checkpoint §6). Pure.

A node is found in the sharing domains of the conversations that use it. So a conversation
whose domain changes keeps its slabs under other keys, and takes no page of others along.
"""

from collections import Counter
from collections.abc import Sequence

from model_host.kv.lineage import Lineage, extend_key, root_key
from model_host.kv.lookup import Conversation, Keys, Lookup, Match, Node, chain, name_of


class Users:
    """The conversations of a pool, and the nodes that each of them uses."""

    def __init__(self) -> None:
        """Start empty."""
        self.conversations: dict[bytes, Conversation] = {}
        """By their ids, the least recently opened first."""
        self._lookup = Lookup()

    def conversation(self, key: bytes, domain: bytes) -> Conversation:
        """Return a conversation, new or known, as one of a domain.

        If its domain has changed, its nodes are found under keys of the new one from now
        on, and their slabs stay as they are. They are no longer found in the former domain,
        unless another conversation there uses them.
        """
        known = self.conversations.pop(key, None) or Conversation(key, domain)
        self.conversations[key] = known
        if known.domain != domain:
            nodes = sorted(known.nodes, key=lambda node: node.index)
            for node in reversed(nodes):
                self.disuse(node, known)
            known.domain = domain
            for node in nodes:
                self._use(node, known)
        return known

    def drop_if_unused(self, user: Conversation) -> None:
        """Forget a conversation without nodes, running sequences and readers."""
        if not user.nodes and not user.holders:
            self.conversations.pop(user.key, None)

    def find(self, user: Conversation, lineage: Lineage) -> tuple[Match, Match]:
        """Return the longest prefix in the domain, and the longest the conversation uses itself.

        They are the same if its own is as long as any other.
        """
        own, found = user.lookup.find(lineage), self._lookup.find(lineage)
        return (found if found.tokens > own.tokens else own), own

    def peek(self, ids: Sequence[int], conversation: bytes, domain: bytes) -> tuple[int, int]:
        """Return the lengths that `find` would, for a conversation opened in `domain`.

        It is not opened: it keeps its domain and its place in the order of use.
        """
        user = self.conversations.get(conversation)
        own = user.lookup.find(Lineage(user.domain, ids)).tokens if user is not None else 0
        return own, max(own, self._lookup.find(Lineage(domain, ids)).tokens)

    def equal_of(self, node: Node) -> Node | None:
        """Return another full node with the lineage of a full one that has one user."""
        (user,) = node.users
        return self._lookup.whole(_end_key(node.keys[user.domain], node))

    def covering(self, node: Node) -> Node | None:
        """Return another node of its only user that holds all tokens of an indexed node."""
        (user,) = node.users
        return user.lookup.covering(node, node.keys[user.domain])

    # --- nodes ------------------------------------------------------------------------

    def use(self, node: Node | None, user: Conversation) -> None:
        """Make a conversation a user of a chain."""
        for each in chain(node):
            if user not in each.users:
                self._use(each, user)

    def _use(self, node: Node, user: Conversation) -> None:
        keys = node.keys.get(user.domain)
        if keys is None:
            parent = node.parent
            start = root_key(user.domain) if parent is None else parent.keys[user.domain].end
            keys = node.keys[user.domain] = Keys(start)
            if node.indexed:
                _end_key(keys, node)
                self._lookup.add(node, keys)
        keys.users += 1
        node.users[user] = user.nodes[node] = None
        if node.indexed:
            user.lookup.add(node, keys)

    def disuse(self, node: Node, user: Conversation) -> None:
        """Undo `use` for one node, whose children the conversation no longer uses."""
        keys = node.keys[user.domain]
        if node.indexed:
            user.lookup.remove(node, keys)
        del node.users[user], user.nodes[node]
        keys.users -= 1
        if not keys.users:
            if node.indexed:
                self._lookup.remove(node, keys)
            del node.keys[user.domain]

    def index(self, node: Node) -> None:
        """Let a node be found under all ids it holds now."""
        self.unindex(node)
        node.indexed = bytes(node.ids)
        for keys in node.keys.values():
            _end_key(keys, node)
            self._lookup.add(node, keys)
        for user in node.users:
            user.lookup.add(node, node.keys[user.domain])

    def unindex(self, node: Node) -> None:
        """Let a node be found by nobody."""
        if node.indexed:
            for user in node.users:
                user.lookup.remove(node, node.keys[user.domain])
            for keys in node.keys.values():
                self._lookup.remove(node, keys)
        node.indexed = b""

    # --- integrity --------------------------------------------------------------------

    def check_integrity(self) -> None:
        """Check the look-ups and keys of all nodes. Raises AssertionError."""
        nodes = {node: None for user in self.conversations.values() for node in user.nodes}
        indexed = [node for node in nodes if node.indexed]
        count = sum(len(node.keys) for node in indexed)
        assert len(self._lookup) == count, f"{len(self._lookup)} nodes are found, not {count}"
        for node in nodes:
            self._check_node(node)
        for user in self.conversations.values():
            assert user.nodes or user.holders, "a conversation without nodes is kept"
            count = sum(bool(node.indexed) for node in user.nodes)
            assert len(user.lookup) == count, "a conversation finds nodes that it does not use"

    def _check_node(self, node: Node) -> None:
        name, parent = name_of(node), node.parent
        is_used = parent is None or node.users.keys() <= parent.users.keys()
        assert is_used, f"{name}: its parent has not all of its users"
        domains = Counter(user.domain for user in node.users)
        assert domains == {d: keys.users for d, keys in node.keys.items()}, f"{name}: domains"
        for domain, keys in node.keys.items():
            start = root_key(domain) if parent is None else parent.keys[domain].end
            assert keys.start == start, f"{name}: key at its start"
            if node.indexed:
                end = extend_key(start, node.ids) if node.is_full else b""
                assert keys.end == end, f"{name}: key at its end"
                assert (node, keys) in self._lookup, f"{name}: not found"
        for user in node.users:
            assert self.conversations.get(user.key) is user, f"{name}: its user is gone"
            assert node in user.nodes, f"{name}: unknown to its user"
            entry = (node, node.keys[user.domain])
            assert not node.indexed or entry in user.lookup, f"{name}: not found by its user"


def _end_key(keys: Keys, node: Node) -> bytes:
    """Set the key at the end of a full node, and return it."""
    if node.is_full and not keys.end:
        keys.end = extend_key(keys.start, node.ids)
    return keys.end
