"""Lineage keys: chained by pages of 16 tokens, one for each run of tokens and namespace."""

import hashlib
import random
import struct

from model_host.kv.lineage import (
    ID_BYTES,
    Lineage,
    common_tokens,
    extend_key,
    pack_ids,
    root_key,
    unpack_ids,
)
from tests.model_host.kv.naive_pool import common

NAMESPACE = b"n" * 32


def test_lineage_is_the_chain_the_specification_names() -> None:
    ids = list(range(40))
    key = hashlib.sha256(NAMESPACE).digest()
    lineage = Lineage(NAMESPACE, ids)
    assert lineage.at(0) == key
    for page in (ids[:16], ids[16:32]):
        key = hashlib.sha256(key + struct.pack("<16I", *page)).digest()
    assert lineage.at(32) == key
    assert lineage.at(40) == hashlib.sha256(key + struct.pack("<8I", *ids[32:])).digest()


def test_common_tokens_are_those_of_a_loop() -> None:
    rng = random.Random(5)
    for _ in range(500):
        one = rng.choices(range(2), k=rng.randrange(40))
        other = one[: rng.randrange(41)] + rng.choices(range(2), k=rng.randrange(9))
        expected = common(one, other)
        assert common_tokens(tuple(one), tuple(other)) == expected
        assert common_tokens(pack_ids(one), pack_ids(other), ID_BYTES) == expected


def test_lineage_depends_on_every_token_before_and_on_no_token_after() -> None:
    ids = list(range(100))
    base = Lineage(NAMESPACE, ids)
    for changed in (0, 15, 16, 50, 99):
        other = Lineage(NAMESPACE, [*ids[:changed], 7777, *ids[changed + 1 :]])
        for tokens in range(101):
            assert (other.at(tokens) == base.at(tokens)) == (tokens <= changed)
    assert Lineage(b"m" * 32, ids).at(64) != base.at(64)


def test_a_key_extended_slab_by_slab_is_the_key_of_the_whole() -> None:
    ids = random.Random(1).choices(range(1 << 32), k=1100)
    key = root_key(NAMESPACE)
    for start in range(0, 1100, 512):
        key = extend_key(key, pack_ids(ids[start : start + 512]))
    assert key == Lineage(NAMESPACE, ids).at(1100)


def test_ids_survive_packing() -> None:
    ids = (0, 1, 49151, (1 << 32) - 1)
    assert unpack_ids(pack_ids(ids)) == ids
    assert pack_ids(ids[:2]) == bytes(4) + b"\1\0\0\0"
