"""Checkpoint archives: checkpoints encrypted for hosts of one key ring (spec/08-checkpoint §8).

    header   magic 8 | conversation 32 | salt 32 | commitment 32
    chunks   AES-256-GCM of 262,128 bytes each, the last one shorter or as long
    content  length of the manifest, 4 bytes little-endian | manifest | payloads

Pure. Whoever carries an archive can neither read nor change it. The key of its chunks comes
from the ring's key, the salt, the conversation and the namespace, so that an archive opens
nowhere else. A chunk's nonce is its number, with a mark for the last one: chunks can't be
reordered, repeated or left out. GCM alone would accept one text under two keys; the
commitment excludes that.
"""

import hmac
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import accumulate

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from model_host.errors import ArchiveForeign, ArchiveInvalid, CheckpointCorrupt
from model_host.kv.checkpoint import (
    MANIFEST_BYTES_MAX,
    Manifest,
    decode_manifest,
    encode_manifest,
)
from model_host.kv.memory import Bytes

MAGIC = b"ANTKVA1\n"
ARCHIVE_SALT_BYTES = 32
ARCHIVE_HEADER_BYTES = len(MAGIC) + 3 * 32
ARCHIVE_CHUNK_BYTES = 262_144
"""Bytes of a chunk with its tag, but for the last one."""
_TAG_BYTES = 16
_TEXT_BYTES = ARCHIVE_CHUNK_BYTES - _TAG_BYTES
_LENGTH_BYTES = 4
_INFO = b"antiphon/v1/archive\0"


def encrypt_archive(
    ring_key: bytes,
    conversation: bytes,
    salt: bytes,
    manifest: Manifest,
    payloads: Iterable[Bytes],
) -> Iterator[bytes]:
    """Yield the header and the chunks of an archive.

    `salt` is 32 fresh random bytes; `payloads` are the bytes of the manifest's pieces.
    """
    key, commitment = _keys(ring_key, conversation, manifest.namespace, salt)
    yield MAGIC + conversation + salt + commitment
    head = encode_manifest(_located(manifest), key)
    cipher, number, text = AESGCM(key), 0, bytearray()
    text += len(head).to_bytes(_LENGTH_BYTES, "little") + head
    for payload in payloads:
        text += payload.data
        while len(text) > _TEXT_BYTES:
            yield cipher.encrypt(_nonce(number), bytes(text[:_TEXT_BYTES]), None)
            del text[:_TEXT_BYTES]
            number += 1
    yield cipher.encrypt(_nonce(number, is_last=True), bytes(text), None)


def archive_bytes(manifest: Manifest) -> int:
    """Return the size of the archive of a checkpoint."""
    head = encode_manifest(_located(manifest), b"")
    text = _LENGTH_BYTES + len(head) + manifest.nbytes
    return ARCHIVE_HEADER_BYTES + text + _TAG_BYTES * -(-text // _TEXT_BYTES)


def conversation_of(header: bytes) -> bytes:
    """Return the conversation that an archive claims to be of. Raises ArchiveInvalid."""
    if len(header) < ARCHIVE_HEADER_BYTES or not header.startswith(MAGIC):
        raise ArchiveInvalid("The file is no checkpoint archive, or is cut off.")
    return header[len(MAGIC) : len(MAGIC) + 32]


class Archive:
    """An archive that is read from its beginning to its end."""

    def __init__(
        self, ring_key: bytes, namespace: bytes, header: bytes, chunks: Iterator[bytes]
    ) -> None:
        """Open an archive of one's own namespace; all `chunks` but the last are as long as may be.

        Raises ArchiveInvalid, or ArchiveForeign for another ring or namespace.
        """
        conversation = conversation_of(header)
        salt, commitment = header[40:72], header[72:ARCHIVE_HEADER_BYTES]
        self._key, expected = _keys(ring_key, conversation, namespace, salt)
        if not hmac.compare_digest(commitment, expected):
            raise ArchiveForeign
        self.conversation = conversation
        self._text = _texts(AESGCM(self._key), chunks)
        self._buffer = bytearray()

    def manifest(self) -> Manifest:
        """Read the manifest, whose pieces lie in the archive. Raises ArchiveInvalid."""
        length = int.from_bytes(self._read(_LENGTH_BYTES), "little")
        if length > MANIFEST_BYTES_MAX:
            raise ArchiveInvalid
        try:
            manifest = decode_manifest(bytes(self._read(length)), self._key)
        except CheckpointCorrupt as error:
            raise ArchiveInvalid(error.detail) from error
        if manifest != _located(manifest):
            raise ArchiveInvalid("Its payloads do not lie one behind the other.")
        return manifest

    def payloads(self, manifest: Manifest) -> Iterator[Bytes]:
        """Read the payloads, the archive's end included. Raises ArchiveInvalid."""
        for index, piece in enumerate(manifest.pieces):
            payload = np.frombuffer(self._read(piece.length), np.uint8)
            if index == len(manifest.pieces) - 1:
                self._check_end()
            yield payload

    def _check_end(self) -> None:
        if self._buffer or any(self._text):
            raise ArchiveInvalid("There are bytes after the last payload.")

    def _read(self, count: int) -> bytes:
        while len(self._buffer) < count:
            more = next(self._text, b"")
            if not more:
                raise ArchiveInvalid("The archive ends too early.")
            self._buffer += more
        data = bytes(self._buffer[:count])
        del self._buffer[:count]
        return data


def _texts(cipher: AESGCM, chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the contents of chunks; the one that nothing follows must be marked as last."""
    chunk = next(chunks, None)
    number = 0
    while chunk is not None:
        following = next(chunks, None)
        try:
            yield cipher.decrypt(_nonce(number, is_last=following is None), chunk, None)
        except InvalidTag as error:
            raise ArchiveInvalid(f"Chunk {number} was changed, moved or cut off.") from error
        chunk, number = following, number + 1


def _nonce(number: int, *, is_last: bool = False) -> bytes:
    return number.to_bytes(11, "big") + bytes([is_last])


def _keys(
    ring_key: bytes, conversation: bytes, namespace: bytes, salt: bytes
) -> tuple[bytes, bytes]:
    """Return the key of an archive's chunks and the commitment to it, 32 bytes each."""
    info = _INFO + conversation + namespace
    both = HKDF(SHA256(), 64, salt, info).derive(ring_key)
    return both[:32], both[32:]


def _located(manifest: Manifest) -> Manifest:
    """Return a manifest whose pieces lie one after the other in the archive."""
    ends = accumulate(piece.length for piece in manifest.pieces)
    return replace(
        manifest,
        pieces=tuple(
            replace(piece, file="archive", offset=end - piece.length)
            for piece, end in zip(manifest.pieces, ends, strict=True)
        ),
    )
