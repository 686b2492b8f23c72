"""KV checkpoints: manifest, usable prefix (spec/08-checkpoint). Pure.

A lineage key identifies the tokens and the namespace of some keys and values; the BLAKE3
of a group identifies their bytes. A group, the unit of storage, has 64 tokens; the last
group may be shorter.

A manifest is 8 bytes magic, 32 bytes HMAC-SHA256 of the rest, then, little-endian, the
fields of `Manifest` in order. `file` is one byte of length and that many of [a-z0-9.-].
"""

import hmac
import re
import struct
from dataclasses import dataclass

from model_host.errors import CheckpointCorrupt
from model_host.kv.lineage import Lineage
from model_host.kv.namespace import GROUP_TOKENS

MAGIC = b"ANTKVM1\n"
TOKENS_MAX = 1 << 24
MANIFEST_BYTES_MAX = 1 << 26
_MAC_TAG = b"antiphon/v1/checkpoint\0"
_FILE_NAME = re.compile(rb"[a-z0-9][a-z0-9.-]{0,63}")


@dataclass(frozen=True, slots=True)
class Group:
    """The keys and values of up to 64 tokens, and the location of their bytes."""

    lineage: bytes
    """Lineage key at the group's last token, 32 bytes."""
    blake3: bytes
    """BLAKE3 of the payload, 32 bytes."""
    file: str
    offset: int
    length: int
    """Length in bytes of the payload, [L, 2, H_kv, tokens, D]."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """A checkpoint: its context, and the locations of its groups."""

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
    groups: tuple[Group, ...]

    def end_of(self, group: int) -> int:
        """Return the token position at which a group ends."""
        return min(self.tokens, (group + 1) * GROUP_TOKENS)


def group_bounds(tokens: int) -> list[tuple[int, int]]:
    """Return (start, stop) of each group of a context of `tokens` tokens."""
    return [(at, min(at + GROUP_TOKENS, tokens)) for at in range(0, tokens, GROUP_TOKENS)]


def usable_tokens(manifest: Manifest, namespace: bytes, lineage: Lineage, limit: int) -> int:
    """Return the number of first tokens that a checkpoint shares with a lineage.

    At most `limit`: whole groups, and the tail group if it ends within the limit.
    """
    if manifest.namespace != namespace:
        return 0
    usable = 0
    for index, group in enumerate(manifest.groups):
        end = manifest.end_of(index)
        if end > limit or group.lineage != lineage.at(end):
            break
        usable = end
    return usable


def encode_manifest(manifest: Manifest, mac_key: bytes) -> bytes:
    """Encode and authenticate a manifest."""
    parts = [
        manifest.seal,
        bytes([len(manifest.generation)]) + manifest.generation,
        struct.pack("<I", manifest.tokens),
        manifest.lineage,
        manifest.namespace,
        struct.pack("<I", len(manifest.groups)),
    ]
    for group in manifest.groups:
        name = group.file.encode()
        parts += [group.lineage, group.blake3, bytes([len(name)]), name]
        parts.append(struct.pack("<QI", group.offset, group.length))
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
        raise CheckpointCorrupt("A manifest's MAC is wrong.")
    reader = _Reader(body)
    seal, generation = reader.read(32), reader.read(reader.number(1))
    tokens, lineage, namespace = reader.number(4), reader.read(32), reader.read(32)
    if len(generation) not in (0, 32) or not 0 < tokens <= TOKENS_MAX:
        raise CheckpointCorrupt("A manifest's generation or token count is out of range.")
    count = reader.number(4)
    if count != -(-tokens // GROUP_TOKENS):
        raise CheckpointCorrupt(f"A manifest has {count} groups for {tokens} tokens.")
    groups = tuple(reader.group() for _ in range(count))
    if reader.at != len(body) or groups[-1].lineage != lineage:
        raise CheckpointCorrupt("A manifest has trailing bytes, or another last group.")
    return Manifest(seal, generation, tokens, lineage, namespace, groups)


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

    def group(self) -> Group:
        """Return the next group; its file name can't lead to another folder."""
        lineage, digest, name = self.read(32), self.read(32), self.read(self.number(1))
        if _FILE_NAME.fullmatch(name) is None:
            raise CheckpointCorrupt("A manifest has an invalid file name.")
        return Group(lineage, digest, name.decode(), self.number(8), self.number(4))
