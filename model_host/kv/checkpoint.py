"""KV checkpoints: manifest, usable prefix (spec/08-checkpoint). Pure.

A lineage key identifies the tokens and the namespace of some keys and values; the BLAKE3
of a piece identifies their bytes. A piece, the unit of storage, lies within one group of
64 tokens: each turn writes its own tokens alone, and a group that became too many pieces
is written again as one.

A manifest is 8 bytes magic, 32 bytes HMAC-SHA256 of the rest, then, little-endian, the
fields of `Manifest` in order. `file` is one byte of length and that many of [a-z0-9.-].
"""

import hmac
import re
import struct
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from model_host.errors import CheckpointCorrupt
from model_host.kv.lineage import Lineage
from model_host.kv.namespace import GROUP_TOKENS
from replica.limits import CHECKPOINT_TOKENS_MAX

MAGIC = b"ANTKVM2\n"
MANIFEST_BYTES_MAX = 1 << 26
PIECES_MAX = 8
"""Most pieces of a group: each one costs a restore a read and a digest."""
_MAC_TAG = b"antiphon/v1/checkpoint\0"
_FILE_NAME = re.compile(rb"[a-z0-9][a-z0-9.-]{0,63}")


@dataclass(frozen=True, slots=True)
class Piece:
    """The keys and values of some tokens of one group, and the location of their bytes."""

    stop: int
    """Position after its last token; it begins where the piece before it ends."""
    lineage: bytes
    """Lineage key at `stop`, 32 bytes."""
    blake3: bytes
    """BLAKE3 of the payload, 32 bytes."""
    file: str
    offset: int
    length: int
    """Length in bytes of the payload, [L, 2, H_kv, tokens, D]."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """A checkpoint: its context, and the locations of its pieces."""

    seal: bytes
    """Id of the seal of the context, 32 bytes."""
    generation: bytes
    """Id of the generation that ends the context, 32 bytes, or empty."""
    tokens: int
    """Number of positions covered: all but the last token, which never has keys and values."""
    lineage: bytes
    """Lineage key at `tokens`, 32 bytes."""
    namespace: bytes
    """Digest of the namespace, 32 bytes."""
    pieces: tuple[Piece, ...]

    @property
    def nbytes(self) -> int:
        """Return the bytes of all payloads."""
        return sum(piece.length for piece in self.pieces)

    def index_at(self, tokens: int) -> int:
        """Return the index of the first piece that ends after `tokens` tokens."""
        return bisect_right(self.pieces, tokens, key=_stop_of)


def piece_bounds(start: int, tokens: int) -> list[tuple[int, int]]:
    """Return (start, stop) of the pieces to be written from `start` to `tokens`."""
    bounds = []
    while start < tokens:
        stop = min(start - start % GROUP_TOKENS + GROUP_TOKENS, tokens)
        bounds.append((start, stop))
        start = stop
    return bounds


def usable_pieces(manifest: Manifest, namespace: bytes, lineage: Lineage) -> int:
    """Return the number of first pieces that a lineage's tokens have as well."""
    if manifest.namespace != namespace:
        return 0
    for index, piece in enumerate(manifest.pieces):
        if piece.stop > len(lineage) or piece.lineage != lineage.at(piece.stop):
            return index
    return len(manifest.pieces)


def usable_tokens(manifest: Manifest, namespace: bytes, lineage: Lineage) -> int:
    """Return the number of first tokens that a checkpoint shares with a lineage, by pieces."""
    usable = usable_pieces(manifest, namespace, lineage)
    return manifest.pieces[usable - 1].stop if usable else 0


def stored_pieces(
    manifests: Iterable[Manifest], namespace: bytes, lineage: Lineage
) -> tuple[Piece, ...]:
    """Return the stored pieces that a new checkpoint of a lineage's tokens begins with.

    A last group that is incomplete and has PIECES_MAX pieces is left out: it is written again.
    """
    longest: tuple[Piece, ...] = ()
    for manifest in manifests:
        pieces = manifest.pieces[: usable_pieces(manifest, namespace, lineage)]
        if pieces and (not longest or pieces[-1].stop > longest[-1].stop):
            longest = pieces
    if not longest or longest[-1].stop % GROUP_TOKENS == 0:
        return longest
    group = longest[-1].stop // GROUP_TOKENS
    before = bisect_right(longest, group * GROUP_TOKENS, key=_stop_of)
    return longest if len(longest) - before < PIECES_MAX else longest[:before]


def _stop_of(piece: Piece) -> int:
    return piece.stop


def encode_manifest(manifest: Manifest, mac_key: bytes) -> bytes:
    """Encode and authenticate a manifest."""
    parts = [
        manifest.seal,
        bytes([len(manifest.generation)]) + manifest.generation,
        struct.pack("<I", manifest.tokens),
        manifest.lineage,
        manifest.namespace,
        struct.pack("<I", len(manifest.pieces)),
    ]
    for piece in manifest.pieces:
        name = piece.file.encode()
        parts += [struct.pack("<I", piece.stop), piece.lineage, piece.blake3]
        parts += [bytes([len(name)]), name, struct.pack("<QI", piece.offset, piece.length)]
    body = b"".join(parts)
    return MAGIC + _mac(mac_key, body) + body


def decode_manifest(data: bytes, mac_key: bytes) -> Manifest:
    """Check and decode a manifest; it is parsed only after its MAC is verified.

    Raises CheckpointCorrupt.
    """
    if len(data) > MANIFEST_BYTES_MAX or data[:8] != MAGIC:
        raise CheckpointCorrupt("A manifest is too long or has a wrong magic.")
    body = data[40:]
    if not hmac.compare_digest(data[8:40], _mac(mac_key, body)):
        raise CheckpointCorrupt("A manifest's MAC is wrong: it is damaged, or of another key ring.")
    reader = _Reader(body)
    seal, generation = reader.read(32), reader.read(reader.number(1))
    tokens, lineage, namespace = reader.number(4), reader.read(32), reader.read(32)
    if len(generation) not in (0, 32) or not 0 < tokens <= CHECKPOINT_TOKENS_MAX:
        raise CheckpointCorrupt("A manifest's generation or token count is out of range.")
    pieces = tuple(reader.piece() for _ in range(_count(reader.number(4), tokens)))
    if reader.at != len(body) or (pieces[-1].stop, pieces[-1].lineage) != (tokens, lineage):
        raise CheckpointCorrupt("A manifest has trailing bytes, or another last piece.")
    starts = (0, *(piece.stop for piece in pieces))
    for start, piece in zip(starts, pieces, strict=False):
        if not start < piece.stop <= start - start % GROUP_TOKENS + GROUP_TOKENS:
            raise CheckpointCorrupt("A manifest has a piece that is empty or leaves its group.")
    return Manifest(seal, generation, tokens, lineage, namespace, pieces)


def _count(count: int, tokens: int) -> int:
    """Check the number of pieces against that of tokens."""
    if not -(-tokens // GROUP_TOKENS) <= count <= tokens:
        raise CheckpointCorrupt(f"A manifest has {count} pieces for {tokens} tokens.")
    return count


def _mac(mac_key: bytes, body: bytes) -> bytes:
    return hmac.digest(mac_key, _MAC_TAG + body, "sha256")


class _Reader:
    """A cursor over a manifest's body that never reads past its end."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.at = 0

    def read(self, count: int) -> bytes:
        """Return the next `count` bytes."""
        data = self._body[self.at : self.at + count]
        if len(data) != count:
            raise CheckpointCorrupt("A manifest ends too early.")
        self.at += count
        return data

    def number(self, width: int) -> int:
        """Return the next little-endian number of `width` bytes."""
        return int.from_bytes(self.read(width), "little")

    def piece(self) -> Piece:
        """Return the next piece; its file name can't lead to another folder."""
        stop, lineage, digest = self.number(4), self.read(32), self.read(32)
        name = self.read(self.number(1))
        if _FILE_NAME.fullmatch(name) is None:
            raise CheckpointCorrupt("A manifest has an invalid file name.")
        return Piece(stop, lineage, digest, name.decode(), self.number(8), self.number(4))
