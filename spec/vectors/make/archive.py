"""archive.json: a checkpoint, fixed secrets and a fixed salt → the bytes of an archive."""

import struct
from dataclasses import replace
from typing import Any

from blake3 import blake3
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from spec.vectors.make.build import sha256
from spec.vectors.make.lineage import mac
from spec.vectors.make.manifest import IDS, NAMESPACE, Manifest, Piece, bounds, lineage_at
from spec.vectors.make.misread import misread

MAGIC = b"ANTKVA1\n"
INFO = b"antiphon/v1/archive\0"
TEXT_BYTES = 262_128
RING, SALT = sha256(b"ring archive"), sha256(b"archive salt")
CONVERSATION = sha256(b"conversation")
INVALID, FOREIGN = "ARCHIVE_INVALID", "ARCHIVE_FOREIGN"

Vector = dict[str, Any]


def hkdf(secret: bytes, salt: bytes, info: bytes) -> bytes:
    """Return 64 bytes of HKDF-SHA-256 (RFC 5869)."""
    extracted = mac(salt, secret)
    first = mac(extracted, info + b"\x01")
    return first + mac(extracted, first + info + b"\x02")


def nonce(number: int, *, last: bool) -> bytes:
    """Return the nonce of a chunk."""
    return number.to_bytes(11, "big") + bytes([last])


def filled(pattern: bytes, length: int) -> bytes:
    """Return a payload: the pattern, repeated and cut off."""
    return (pattern * (length // len(pattern) + 1))[:length]


def _checkpoint(tokens: int, lengths: list[int]) -> tuple[Manifest, list[bytes]]:
    """Return a manifest whose pieces lie in an archive, and their payloads."""
    pieces, payloads, offset = [], [], 0
    for (_, stop), length in zip(bounds(0, tokens), lengths, strict=True):
        payload = filled(sha256(b"payload %d" % stop), length)
        digest = blake3(payload).digest()
        pieces.append(Piece(stop, lineage_at(IDS, stop), digest, "archive", offset, length))
        payloads.append(payload)
        offset += length
    last = lineage_at(IDS, tokens)
    generation = sha256(b"generation")
    return Manifest(sha256(b"seal"), generation, tokens, last, NAMESPACE, tuple(pieces)), payloads


def _keys(info: bytes, salt: bytes = SALT) -> tuple[bytes, bytes]:
    both = hkdf(RING, salt, info)
    return both[:32], both[32:]


KEY, COMMITMENT = _keys(INFO + CONVERSATION + NAMESPACE)
HEADER = MAGIC + CONVERSATION + SALT + COMMITMENT


def _content(manifest: Manifest, payloads: list[bytes], key: bytes = KEY) -> bytes:
    head = manifest.encode(key)
    return struct.pack("<I", len(head)) + head + b"".join(payloads)


def _chunks(content: bytes) -> list[bytes]:
    texts = [content[at : at + TEXT_BYTES] for at in range(0, len(content), TEXT_BYTES)]
    return [
        AESGCM(KEY).encrypt(nonce(number, last=number == len(texts) - 1), text, None)
        for number, text in enumerate(texts)
    ]


def _archive(name: str, comment: str, tokens: int, lengths: list[int]) -> Vector:
    manifest, payloads = _checkpoint(tokens, lengths)
    content = _content(manifest, payloads)
    chunks = _chunks(content)
    data = HEADER + b"".join(chunks)
    wrong = {
        "no zero byte behind the tag": _keys(INFO[:-1] + CONVERSATION + NAMESPACE),
        "namespace before conversation": _keys(INFO + NAMESPACE + CONVERSATION),
        "no conversation": _keys(INFO + NAMESPACE),
        "no salt": _keys(INFO + CONVERSATION + NAMESPACE, b""),
        "commitment before key": (COMMITMENT, KEY),
    }
    return {
        "name": name,
        "comment": comment,
        "of": "archive",
        **_secrets(),
        "salt": SALT.hex(),
        "key": KEY.hex(),
        "commitment": COMMITMENT.hex(),
        "manifest": manifest.as_json(),
        "payloads": [
            {"pattern": p[:32].ljust(32, b"\0").hex(), "length": len(p)} for p in payloads
        ],
        "manifest_bytes": len(manifest.encode(KEY)),
        "chunks": [{"length": len(c), "sha256": sha256(c).hex()} for c in chunks],
        "bytes": data.hex() if len(data) < 4096 else None,
        "sha256": sha256(data).hex(),
        "misread": misread(KEY.hex(), {n: k.hex() for n, (k, _) in wrong.items()}),
    }


def _secrets(
    ring: bytes = RING, conversation: bytes = CONVERSATION, namespace: bytes = NAMESPACE
) -> dict[str, str]:
    return {
        "secret": ring.hex(),
        "conversation": conversation.hex(),
        "namespace": namespace.hex(),
    }


def _refused(name: str, comment: str, data: bytes, reason: str, **other: bytes) -> Vector:
    return {
        "name": name,
        "comment": comment,
        "of": "refused",
        **_secrets(**other),
        "bytes": data.hex(),
        "reason": reason,
    }


def _all_refused() -> list[Vector]:
    manifest, payloads = _checkpoint(3, [48])
    content = _content(manifest, payloads)
    data = HEADER + _chunks(content)[0]
    cipher, end = AESGCM(KEY), len(data)

    def flipped(at: int) -> bytes:
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

    def sealed(text: bytes, number: int = 0, *, last: bool = True) -> bytes:
        return HEADER + cipher.encrypt(nonce(number, last=last), text, None)

    def moved(**change: Any) -> bytes:
        one = replace(manifest, pieces=(replace(manifest.pieces[0], **change),))
        return sealed(_content(one, payloads))

    disk = _content(manifest, payloads, sha256(b"ring checkpoint"))
    mixed = bytes(11) + b"\x01"
    little = HEADER + cipher.encrypt(mixed[::-1], content, None)
    return [
        _refused("magic", "one bit of the magic", flipped(0), INVALID),
        _refused("header-cut", "the header is cut off", data[:103], INVALID),
        _refused("header-alone", "no chunk follows", data[:104], INVALID),
        _refused("header-conversation", "moved to another conversation", flipped(8), FOREIGN),
        _refused("header-salt", "one bit of the salt", flipped(40), FOREIGN),
        _refused("header-commitment", "one bit of the commitment", flipped(72), FOREIGN),
        _refused("other-ring", "a host of another ring", data, FOREIGN, ring=sha256(b"other")),
        _refused("other-namespace", "another model", data, FOREIGN, namespace=sha256(b"other")),
        _refused("manifest-namespace", "its manifest states another model",
                 sealed(_content(replace(manifest, namespace=sha256(b"other")), payloads)),
                 FOREIGN),
        _refused("chunk", "one bit of the first chunk", flipped(104), INVALID),
        _refused("chunk-tag", "one bit of its tag", flipped(end - 1), INVALID),
        _refused("cut-off", "the last byte is missing", data[:-1], INVALID),
        _refused("extended", "one byte more", data + b"\0", INVALID),
        _refused("unmarked", "the last chunk is not marked as that",
                 sealed(content, last=False), INVALID),
        _refused("moved", "the chunk of another place", sealed(content, 1), INVALID),
        _refused("nonce-order", "a nonce that begins with the mark", little, INVALID),
        _refused("key-of-disk", "a manifest under the key of those on disk", sealed(disk), INVALID),
        _refused("payload-short", "a payload shorter than its manifest says",
                 moved(length=49), INVALID),
        _refused("payload-changed", "a payload of another digest, in its own chunk",
                 sealed(content[:-1] + bytes([content[-1] ^ 1])), INVALID),
        _refused("payload-long", "a byte behind the last payload",
                 sealed(content + b"\0"), INVALID),
        _refused("piece-file", "a piece in another file", moved(file="brchive"), INVALID),
        _refused("piece-offset", "a piece that begins elsewhere", moved(offset=1), INVALID),
        _refused("length", "a manifest longer than the content", sealed(b"\xff\xff\0\0"), INVALID),
    ]  # fmt: skip


def build() -> dict[str, object]:
    """Return the file."""
    manifest, _ = _checkpoint(3, [0])
    room = TEXT_BYTES - 4 - len(manifest.encode(KEY))
    return {
        "file": "archive",
        "spec": "spec/08-checkpoint §8",
        "comment": "`of` archive: the ring's `secret` for archives, a conversation, the digest of a"
        " namespace, a salt and a checkpoint → `key`, `commitment` and the bytes of the archive,"
        " null where they are many. A payload is its `pattern` of 32 bytes, repeated and cut off"
        " at `length`. `misread`: the key that a misreading would give. `of` refused: `bytes` that"
        " a host with this ring and namespace refuses, and the reason.",
        "vectors": [
            _archive("one-piece", "one chunk", 3, [48]),
            _archive("three-pieces", "payloads one after the other", 149, [256, 256, 84]),
            _archive("full", "one chunk of the greatest length: no empty one follows", 3, [room]),
            _archive("full-and-one", "one byte more: a second chunk of 17 bytes", 3, [room + 1]),
            _archive("chunks", "three chunks, whose borders are no borders of payloads", 149,
                     [200_000, 300_001, 7]),
            *_all_refused(),
        ],
    }  # fmt: skip
