"""The prefix index: its own check finds damage, and no order of operations causes any."""

import random
from collections.abc import Callable

import pytest

from model_host.kv.lookup import Conversation, Node, chain
from model_host.kv.prefix import PrefixIndex
from tests.model_host.kv.indexed import A, B, C, D, E, Indexed


def _keys(node: Node) -> None:
    node.keys[D].start = bytes(32)


def _ids(node: Node) -> None:
    node.ids[0] ^= 1


def _not_found(index: PrefixIndex, node: Node) -> None:
    index.users._lookup.remove(node, node.keys[D])


def _users(user: Conversation, node: Node) -> None:
    del node.users[user]


DAMAGES: dict[str, Callable[[PrefixIndex, Conversation, Node], object]] = {
    "key": lambda index, user, node: _keys(node),
    "ids": lambda index, user, node: _ids(node),
    "empty": lambda index, user, node: node.ids.clear(),
    "children": lambda index, user, node: setattr(node, "children", 1),
    "holds": lambda index, user, node: setattr(node, "holds", 1),
    "pins": lambda index, user, node: setattr(node, "pins", 1),
    "stamp": lambda index, user, node: setattr(node, "stamp", 99),
    "index": lambda index, user, node: setattr(node, "index", 7),
    "not found": lambda index, user, node: _not_found(index, node),
    "not found by its user": lambda index, user, node: user.lookup.remove(node, node.keys[D]),
    "found twice": lambda index, user, node: index.users._lookup.add(node, node.keys[D]),
    "user": lambda index, user, node: _users(user, node),
    "parent without user": lambda index, user, node: _users(user, chain(node)[0]),
    "parent gone": lambda index, user, node: index._nodes.pop(chain(node)[0]),
    "user gone": lambda index, user, node: index.users.conversations.clear(),
    "unknown to its user": lambda index, user, node: user.nodes.pop(node),
    "idle": lambda index, user, node: setattr(index.holds, "idle_groups", 0),
    "pinned": lambda index, user, node: setattr(index.holds, "pinned_slabs", 1),
    "empty user": lambda index, user, node: index.users.conversation(b"z", D),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_noticed(name: str) -> None:
    given = Indexed()
    end = given.add(A, 1100)
    DAMAGES[name](given.index, given.index.users.conversations[A], end)
    with pytest.raises(AssertionError):
        given.index.check_integrity()


def test_any_order_of_operations_keeps_the_index_whole() -> None:
    rng, given = random.Random(11), Indexed(200)
    held: list[Node] = []
    for _ in range(400):
        ends = [node for node in given.index if node.is_full]
        parent = rng.choice([None, *ends])
        count = (0 if parent is None else parent.start + 512) + rng.randrange(1, 700)
        kind = rng.randrange(5)
        if kind < 2 and given.slabs.free_slabs > 3:
            key = rng.choice((A, B, C))
            given.add(key, count, rng.choice((D, D, E)), parent)
        elif kind == 2 and len(given.index):
            held.append(rng.choice(list(given.index)))
            given.index.holds.hold(held[-1])
        elif kind == 3 and held:
            given.index.holds.release(held.pop())
        elif kind == 4 and given.index.holds.idle_slabs:
            given.index.evict_oldest()
        given.index.check_integrity()
