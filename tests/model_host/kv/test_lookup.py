"""Look-ups by lineage: the longest prefix to the token, without a scan of all candidates."""

import random

import pytest

from model_host.kv import lookup as module
from model_host.kv.lineage import Lineage, common_tokens, extend_key, pack_ids, root_key
from model_host.kv.lookup import Keys, Lookup, Node, chain
from tests.model_host.kv.naive_pool import common

DOMAIN = b"d" * 32


def _add(lookup: Lookup, ids: list[int], serial: int = 0) -> Node:
    """Add the nodes of a context, each found under its own ids."""
    node, key = None, root_key(DOMAIN)
    for index, start in enumerate(range(0, len(ids), 512)):
        packed = pack_ids(ids[start : start + 512])
        node = Node(node, index, 0, serial * 10 + index, bytearray(packed), indexed=packed)
        keys = Keys(key, extend_key(key, packed) if node.is_full else b"")
        lookup.add(node, keys)
        node.keys[DOMAIN] = keys
        key = keys.end
    assert node is not None
    return node


def test_the_longest_prefix_is_that_of_a_scan() -> None:
    rng = random.Random(7)
    lookup, contexts = Lookup(), []
    for serial in range(150):
        past = rng.choice(contexts) if contexts else []
        ids = past[: rng.randrange(len(past) + 1)] + rng.choices(range(2), k=rng.randrange(1, 700))
        ids = ids[:1500]
        _add(lookup, ids, serial)
        contexts.append(ids)
        wanted = past[: rng.randrange(len(past) + 1)] + rng.choices(range(2), k=20)
        found = lookup.find(Lineage(DOMAIN, wanted))
        assert found.tokens == max(common(wanted, other) for other in contexts)
        held = [i for node in chain(found.node) for i in memoryview(node.indexed).cast("I")]
        assert held[: found.tokens] == wanted[: found.tokens]


def test_nothing_is_found_under_another_domain_or_after_removal() -> None:
    lookup, ids = Lookup(), list(range(700))
    last = _add(lookup, ids)
    assert lookup.find(Lineage(DOMAIN, ids)).tokens == 700
    assert lookup.find(Lineage(b"e" * 32, ids)).tokens == 0
    for node in reversed(chain(last)):
        lookup.remove(node, node.keys[DOMAIN])
    assert lookup.find(Lineage(DOMAIN, ids)).tokens == len(lookup) == 0
    assert not lookup._whole
    assert not lookup._beginning


def test_a_thousand_conversations_with_one_prompt_need_two_comparisons(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lookup, rng, prompt = Lookup(), random.Random(9), list(range(100))
    for serial in range(1000):
        _add(lookup, prompt + rng.choices(range(50000), k=50), serial)
    compared = []

    def counted(*runs) -> int:
        compared.append(1)
        return common_tokens(*runs)

    monkeypatch.setattr(module, "common_tokens", counted)
    assert lookup.find(Lineage(DOMAIN, [*prompt, 60000])).tokens == 100
    assert len(compared) <= 2


def test_a_covering_node_holds_all_tokens_of_another() -> None:
    lookup = Lookup()
    short, long = _add(lookup, [1, 2], 1), _add(lookup, [1, 2, 3], 2)
    again, other = _add(lookup, [1, 2, 3], 3), _add(lookup, [1, 7], 4)
    assert lookup.covering(short, short.keys[DOMAIN]) in (long, again)
    assert lookup.covering(long, long.keys[DOMAIN]) is again
    assert lookup.covering(again, again.keys[DOMAIN]) is long
    assert lookup.covering(other, other.keys[DOMAIN]) is None
