"""Lineage and manifests: the claims of a checkpoint, and reasons to refuse it."""

import random
from dataclasses import replace
from itertools import pairwise

import pytest

from model_host.errors import CheckpointCorrupt
from model_host.kv import checkpoint
from model_host.kv.checkpoint import (
    PIECES_MAX,
    Manifest,
    Piece,
    decode_manifest,
    encode_manifest,
    piece_bounds,
    stored_pieces,
    usable_tokens,
)
from model_host.kv.lineage import Lineage

KEY = b"k" * 32
NAMESPACE = b"n" * 32


def manifest(ids: list[int], namespace: bytes = NAMESPACE, turns: tuple[int, ...] = ()) -> Manifest:
    """Return a checkpoint of which a piece ends wherever a turn did."""
    lineage = Lineage(namespace, ids)
    ends = [0, *turns, len(ids)]
    bounds = [each for at, end in pairwise(ends) for each in piece_bounds(at, end)]
    pieces = tuple(
        Piece(
            stop, lineage.at(stop), bytes([stop % 256]) * 32, "00000000.pack", at * 100,
            (stop - at) * 100,
        )
        for at, stop in bounds
    )  # fmt: skip
    return Manifest(b"s" * 32, b"", len(ids), lineage.at(len(ids)), namespace, pieces)


def test_a_manifest_survives_the_round_trip() -> None:
    for count in (1, 63, 64, 65, 640):
        for generation in (b"", b"g" * 32):
            made = replace(manifest(list(range(count))), generation=generation)
            assert made.nbytes == count * 100
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
        {"pieces": ()},
    ],
)
def test_a_manifest_that_contradicts_itself_is_refused(wrong: dict[str, object]) -> None:
    made = replace(manifest(list(range(130))), **wrong)  # type: ignore[arg-type]
    with pytest.raises(CheckpointCorrupt):
        decode_manifest(encode_manifest(made, KEY), KEY)


@pytest.mark.parametrize("name", ["", "../x", "a/b", "A.pack", ".hidden", "x" * 65, "a\0"])
def test_a_manifest_can_name_no_file_outside_its_folder(name: str) -> None:
    made = manifest([1, 2])
    made = replace(made, pieces=(replace(made.pieces[0], file=name),))
    with pytest.raises(CheckpointCorrupt, match="file"):
        decode_manifest(encode_manifest(made, KEY), KEY)


@pytest.mark.parametrize("stops", [(64, 64, 130), (0, 64, 130), (65, 128, 130), (40, 130), (130,)])
def test_a_piece_that_is_empty_or_leaves_its_group_is_refused(stops: tuple[int, ...]) -> None:
    made = manifest(list(range(130)))
    pieces = tuple(replace(made.pieces[-1], stop=stop) for stop in stops)
    with pytest.raises(CheckpointCorrupt):
        decode_manifest(encode_manifest(replace(made, pieces=pieces), KEY), KEY)


def test_usable_is_the_longest_run_of_pieces_with_the_same_tokens() -> None:
    rng = random.Random(2)
    stored = [rng.randrange(1000) for _ in range(200)]
    for _ in range(300):
        turns = tuple(sorted(rng.sample(range(1, 200), rng.randrange(5))))
        made = manifest(stored, turns=turns)
        common = rng.randrange(201)
        ids = stored[:common] + [5000 + n for n in range(rng.randrange(100))]
        limit = rng.randrange(len(ids) + 1)
        usable = usable_tokens(made, NAMESPACE, Lineage(NAMESPACE, ids[:limit]))
        ends = [piece.stop for piece in made.pieces if piece.stop <= min(common, limit)]
        assert usable == max(ends, default=0)


def test_a_checkpoint_begins_with_the_most_tokens_stored_for_its_lineage() -> None:
    ids = list(range(300))
    short, long = manifest(ids[:100]), manifest([*ids[:200], 7], turns=(200,))
    found = stored_pieces([short, long], NAMESPACE, Lineage(NAMESPACE, ids))
    assert [piece.stop for piece in found] == [64, 128, 192, 200]
    assert stored_pieces([short, long], b"o" * 32, Lineage(NAMESPACE, ids)) == ()
    assert stored_pieces([], NAMESPACE, Lineage(NAMESPACE, ids)) == ()


def test_a_group_of_many_pieces_is_written_again_as_one() -> None:
    ids = list(range(130))
    for count in range(1, 2 * PIECES_MAX):
        turns = tuple(range(65, 64 + count))
        made = manifest(ids[: 64 + count], turns=turns)
        assert len(made.pieces) == 1 + count
        found = stored_pieces([made], NAMESPACE, Lineage(NAMESPACE, ids))
        assert len(found) == (1 if count >= PIECES_MAX else 1 + count)
    whole = manifest(ids[:128], turns=tuple(range(65, 72)))
    assert len(stored_pieces([whole], NAMESPACE, Lineage(NAMESPACE, ids))) == 9


def test_nothing_of_another_namespace_is_usable() -> None:
    ids = list(range(128))
    lineage = Lineage(NAMESPACE, ids)
    assert usable_tokens(manifest(ids), NAMESPACE, lineage) == 128
    assert usable_tokens(manifest(ids, b"o" * 32), NAMESPACE, lineage) == 0
    # Claiming the namespace doesn't help: its keys come from another one.
    lying = replace(manifest(ids, b"o" * 32), namespace=NAMESPACE)
    assert usable_tokens(lying, NAMESPACE, lineage) == 0
