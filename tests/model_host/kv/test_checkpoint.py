"""Lineage and manifests: the claims of a checkpoint, and reasons to refuse it."""

import random
from dataclasses import replace

import pytest

from model_host.errors import CheckpointCorrupt
from model_host.kv import checkpoint
from model_host.kv.checkpoint import (
    Group,
    Manifest,
    decode_manifest,
    encode_manifest,
    group_bounds,
    usable_tokens,
)
from model_host.kv.lineage import Lineage

KEY = b"k" * 32
NAMESPACE = b"n" * 32


def manifest(ids: list[int], namespace: bytes = NAMESPACE) -> Manifest:
    lineage = Lineage(namespace, ids)
    groups = tuple(
        Group(lineage.at(stop), bytes([stop % 256]) * 32, "00000000.pack", start * 100, 6400)
        for start, stop in group_bounds(len(ids))
    )
    return Manifest(b"s" * 32, b"", len(ids), lineage.at(len(ids)), namespace, groups)


def test_a_manifest_survives_the_round_trip() -> None:
    for count in (1, 63, 64, 65, 640):
        for generation in (b"", b"g" * 32):
            made = replace(manifest(list(range(count))), generation=generation)
            assert decode_manifest(encode_manifest(made, KEY), KEY) == made


def test_a_manifest_with_any_byte_changed_is_refused() -> None:
    data = encode_manifest(manifest(list(range(130))), KEY)
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1
        with pytest.raises(CheckpointCorrupt):
            decode_manifest(bytes(damaged), KEY)


def test_a_manifest_cut_or_extended_is_refused() -> None:
    data = encode_manifest(manifest(list(range(130))), KEY)
    for size in range(len(data)):
        with pytest.raises(CheckpointCorrupt):
            decode_manifest(data[:size], KEY)
    with pytest.raises(CheckpointCorrupt):
        decode_manifest(data + b"\0", KEY)


def test_a_manifest_beyond_its_greatest_size_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    made = manifest(list(range(130)))
    data = encode_manifest(made, KEY)
    monkeypatch.setattr(checkpoint, "MANIFEST_BYTES_MAX", len(data))
    assert decode_manifest(data, KEY) == made
    monkeypatch.setattr(checkpoint, "MANIFEST_BYTES_MAX", len(data) - 1)
    with pytest.raises(CheckpointCorrupt, match="too long"):
        decode_manifest(data, KEY)


def test_a_manifest_of_another_key_is_refused() -> None:
    with pytest.raises(CheckpointCorrupt, match="MAC"):
        decode_manifest(encode_manifest(manifest([1]), b"x" * 32), KEY)


@pytest.mark.parametrize(
    "wrong",
    [
        {"tokens": 0},
        {"tokens": 200},
        {"generation": b"g" * 31},
        {"lineage": b"l" * 32},
        {"groups": ()},
    ],
)
def test_a_manifest_that_contradicts_itself_is_refused(wrong: dict[str, object]) -> None:
    made = replace(manifest(list(range(130))), **wrong)  # type: ignore[arg-type]
    with pytest.raises(CheckpointCorrupt):
        decode_manifest(encode_manifest(made, KEY), KEY)


@pytest.mark.parametrize("name", ["", "../x", "a/b", "A.pack", ".hidden", "x" * 65, "a\0"])
def test_a_manifest_can_name_no_file_outside_its_folder(name: str) -> None:
    made = manifest([1, 2])
    made = replace(made, groups=(replace(made.groups[0], file=name),))
    with pytest.raises(CheckpointCorrupt, match="file"):
        decode_manifest(encode_manifest(made, KEY), KEY)


def test_usable_is_the_longest_run_of_whole_groups_and_the_tail() -> None:
    rng = random.Random(2)
    stored = [rng.randrange(1000) for _ in range(200)]
    made = manifest(stored)
    for _ in range(300):
        common = rng.randrange(201)
        ids = stored[:common] + [5000 + n for n in range(rng.randrange(100))]
        limit = rng.randrange(len(ids) + 1)
        usable = usable_tokens(made, NAMESPACE, Lineage(NAMESPACE, ids[:limit]), limit)
        ends = [stop for _, stop in group_bounds(200) if stop <= min(common, limit)]
        assert usable == max(ends, default=0)


def test_nothing_of_another_namespace_is_usable() -> None:
    ids = list(range(128))
    lineage = Lineage(NAMESPACE, ids)
    assert usable_tokens(manifest(ids), NAMESPACE, lineage, 128) == 128
    assert usable_tokens(manifest(ids, b"o" * 32), NAMESPACE, lineage, 128) == 0
    # Claiming the namespace doesn't help: its keys come from another one.
    lying = replace(manifest(ids, b"o" * 32), namespace=NAMESPACE)
    assert usable_tokens(lying, NAMESPACE, lineage, 128) == 0
