"""Checkpoint archives: opened by their ring, for their conversation, unchanged, or not at all."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from blake3 import blake3

from model_host.errors import ArchiveError, ArchiveForeign, ArchiveInvalid
from model_host.kv.archive import (
    ARCHIVE_CHUNK_BYTES,
    ARCHIVE_HEADER_BYTES,
    Archive,
    archive_bytes,
    conversation_of,
    encrypt_archive,
)
from model_host.kv.checkpoint import Manifest, Piece, piece_bounds
from model_host.kv.lineage import Lineage
from model_host.kv.memory import Bytes

RING, CONVERSATION, NAMESPACE, SALT = b"r" * 32, b"c" * 32, b"n" * 32, b"s" * 32
TOKEN_BYTES = 2_000


def made(tokens: int, namespace: bytes = NAMESPACE) -> tuple[Manifest, list[Bytes]]:
    lineage = Lineage(namespace, range(tokens))
    pieces, payloads = [], []
    for start, stop in piece_bounds(0, tokens):
        rng = np.random.default_rng(stop)
        payload = rng.integers(0, 256, (stop - start) * TOKEN_BYTES, np.uint8)
        digest = blake3(payload.data).digest()
        pieces.append(
            Piece(stop, lineage.at(stop), digest, "00000007.pack", 9 * start, payload.nbytes)
        )
        payloads.append(payload)
    last = lineage.at(tokens)
    return Manifest(b"l" * 32, b"", tokens, last, namespace, tuple(pieces)), payloads


def archive(tokens: int = 300, conversation: bytes = CONVERSATION) -> bytes:
    return b"".join(encrypt_archive(RING, conversation, SALT, *made(tokens)))


def chunks(data: bytes) -> Iterator[bytes]:
    for at in range(ARCHIVE_HEADER_BYTES, len(data), ARCHIVE_CHUNK_BYTES):
        yield data[at : at + ARCHIVE_CHUNK_BYTES]


def opened(
    data: bytes, ring: bytes = RING, namespace: bytes = NAMESPACE
) -> tuple[Manifest, list[Bytes]]:
    found = Archive(ring, namespace, data[:ARCHIVE_HEADER_BYTES], chunks(data))
    manifest = found.manifest()
    return manifest, list(found.payloads(manifest))


@pytest.mark.parametrize("tokens", [1, 64, 130, 131, 300])
def test_an_archive_holds_a_checkpoint(tokens: int) -> None:
    manifest, payloads = made(tokens)
    data = archive(tokens)
    found, bodies = opened(data)
    located = [replace(piece, file="archive") for piece in manifest.pieces]
    assert [replace(p, offset=0) for p in found.pieces] == [replace(p, offset=0) for p in located]
    assert all(b.offset - a.offset == a.length for a, b in pairwise(found.pieces))
    assert replace(found, pieces=()) == replace(manifest, pieces=())
    assert all(np.array_equal(a, b) for a, b in zip(payloads, bodies, strict=True))
    assert conversation_of(data[:ARCHIVE_HEADER_BYTES]) == CONVERSATION
    assert archive_bytes(manifest) == len(data)
    assert all(payload.tobytes() not in data for payload in payloads)


def test_an_archive_that_was_changed_anywhere_is_refused() -> None:
    data = archive()
    places = [*range(ARCHIVE_HEADER_BYTES + 100), *range(ARCHIVE_HEADER_BYTES, len(data), 9_973)]
    for at in [*places, len(data) - 1]:
        damaged = bytearray(data)
        damaged[at] ^= 1
        with pytest.raises(ArchiveError):
            opened(bytes(damaged))


def test_chunks_cut_off_added_repeated_or_moved_are_refused() -> None:
    data = archive()
    head, parts = data[:ARCHIVE_HEADER_BYTES], list(chunks(data))
    assert len(parts) == 3
    for wrong in (
        [], parts[:1], parts[:2], [*parts[:2], parts[2][:-1]], [*parts[:2], parts[2] + b"x"],
        [*parts, parts[2]], [parts[1], parts[0], parts[2]], [parts[0], parts[0], parts[2]],
        [parts[0], parts[2]],
    ):  # fmt: skip
        with pytest.raises(ArchiveInvalid):
            opened(head + b"".join(wrong))
    for size in (0, 7, 8, 40, ARCHIVE_HEADER_BYTES - 1):
        with pytest.raises(ArchiveInvalid):
            opened(data[:size])


def test_an_archive_opens_nowhere_else() -> None:
    data = archive()
    for ring, namespace in ((b"x" * 32, NAMESPACE), (RING, b"x" * 32)):
        with pytest.raises(ArchiveForeign):
            opened(data, ring, namespace)
    # Under the name of another conversation, its key is another one.
    moved = data[:8] + b"d" * 32 + data[40:]
    with pytest.raises(ArchiveForeign):
        opened(moved)
    assert conversation_of(moved) == b"d" * 32


def test_bytes_behind_the_last_payload_are_refused() -> None:
    manifest, payloads = made(130)
    longer = [*payloads[:-1], np.append(payloads[-1], np.uint8(0))]
    data = b"".join(encrypt_archive(RING, CONVERSATION, SALT, manifest, longer))
    with pytest.raises(ArchiveInvalid):
        opened(data)
