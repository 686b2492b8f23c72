"""manifest.json: fields and a key ↔ bytes; wrong bytes and the rule they break; pieces."""

import struct
from dataclasses import dataclass, replace
from typing import Any

from blake3 import blake3

from spec.vectors.make.build import pae, sha256
from spec.vectors.make.lineage import keys_of, mac
from spec.vectors.make.misread import misread

MAGIC = b"ANTKVM2\n"
MAC_TAG = b"antiphon/v1/checkpoint\0"
GROUP_TOKENS = 64

Vector = dict[str, Any]


@dataclass(frozen=True)
class Piece:
    """Some tokens of one group; `stop` is the position behind the last."""

    stop: int
    lineage: bytes
    blake3: bytes
    file: str
    offset: int
    length: int


@dataclass(frozen=True)
class Manifest:
    """The fields of a manifest."""

    seal: bytes
    generation: bytes
    tokens: int
    lineage: bytes
    namespace: bytes
    pieces: tuple[Piece, ...]

    @property
    def body(self) -> bytes:
        """The bytes that the MAC covers."""
        parts = [self.seal, bytes([len(self.generation)]), self.generation]
        parts += [struct.pack("<I", self.tokens), self.lineage, self.namespace]
        parts.append(struct.pack("<I", len(self.pieces)))
        for piece in self.pieces:
            file = piece.file.encode()
            parts += [struct.pack("<I", piece.stop), piece.lineage, piece.blake3]
            parts += [bytes([len(file)]), file, struct.pack("<QI", piece.offset, piece.length)]
        return b"".join(parts)

    def encode(self, key: bytes) -> bytes:
        """Return magic, MAC and body."""
        return with_mac(self.body, key)

    def as_json(self) -> Vector:
        """Return the fields for a vector file."""
        return {
            "seal": self.seal.hex(),
            "generation": self.generation.hex(),
            "tokens": self.tokens,
            "lineage": self.lineage.hex(),
            "namespace": self.namespace.hex(),
            "pieces": [
                {
                    "stop": p.stop,
                    "lineage": p.lineage.hex(),
                    "blake3": p.blake3.hex(),
                    "file": p.file,
                    "offset": str(p.offset),
                    "length": p.length,
                }
                for p in self.pieces
            ],
        }


def with_mac(body: bytes, key: bytes) -> bytes:
    """Return the bytes of a manifest with this body."""
    return MAGIC + mac(key, MAC_TAG + body) + body


def bounds(start: int, tokens: int) -> list[list[int]]:
    """Return the beginning and the end of each new piece."""
    found = []
    while start < tokens:
        stop = min((start // GROUP_TOKENS + 1) * GROUP_TOKENS, tokens)
        found.append([start, stop])
        start = stop
    return found


KEY, NAMESPACE = sha256(b"ring checkpoint"), sha256(b"namespace")
IDS = list(range(500, 649))


def lineage_at(ids: list[int], tokens: int) -> bytes:
    """Return the lineage key behind so many tokens."""
    return keys_of(NAMESPACE, ids[:tokens])[-1]


def payload_of(start: int, stop: int) -> bytes:
    """Return the bytes that stand for the keys and values of a piece."""
    return struct.pack(f"<{stop - start}I", *IDS[start:stop])


def manifest_of(*stops: int, file: str = "00000007.pack") -> Manifest:
    """Return a checkpoint of the first tokens of IDS in pieces that end there."""
    pieces = []
    for start, stop in zip((0, *stops), stops, strict=False):
        payload = payload_of(start, stop)
        digest = blake3(payload).digest()
        pieces.append(
            Piece(stop, lineage_at(IDS, stop), digest, file, 4 * start + 2**53, len(payload))
        )
    tokens = stops[-1]
    return Manifest(
        sha256(b"seal"), sha256(b"generation"), tokens, lineage_at(IDS, tokens), NAMESPACE,
        tuple(pieces),
    )  # fmt: skip


WHOLE = manifest_of(64, 128, 140, 149)


def _valid(name: str, comment: str, manifest: Manifest) -> Vector:
    body, data = manifest.body, manifest.encode(KEY)
    wrong = {
        "no tag in the MAC": mac(KEY, body),
        "the MAC's tag framed as PAE": mac(KEY, pae("antiphon/v1/checkpoint", body)),
        "the MAC covers the magic too": mac(KEY, MAC_TAG + MAGIC + body),
        "SHA-256 of key, tag and body": sha256(KEY + MAC_TAG + body),
    }
    right = data[8:40].hex()
    return {
        "name": name,
        "comment": comment,
        "of": "manifest",
        "key": KEY.hex(),
        "bytes": data.hex(),
        "rule": None,
        "fields": manifest.as_json(),
        "misread": misread(right, {n: w.hex() for n, w in wrong.items()}),
    }


RULES = {
    "MAGIC": "the first 8 bytes; at most 2^26 bytes in all",
    "MAC": "before anything else is read",
    "GENERATION": "of 0 or 32 bytes",
    "TOKENS": "1 to 2^24",
    "COUNT": "at least one piece per group of 64 tokens, at most one per token",
    "FILE": "a letter or digit of a-z, 0-9, then up to 63 of these, `.` and `-`",
    "END": "the body ends with its last piece; a field that is cut off breaks this rule alone",
    "LAST": "the last piece ends at `tokens`, with the lineage of the body",
    "PIECE": "no piece is empty or leaves its group",
}
"""The rules of a manifest, in the order in which they are checked."""


def _wrong(name: str, comment: str, data: bytes, rule: str, key: bytes = KEY) -> Vector:
    assert rule in RULES
    return {
        "name": name,
        "comment": comment,
        "of": "manifest",
        "key": key.hex(),
        "bytes": data.hex(),
        "rule": rule,
        "fields": None,
        "misread": {},
    }


def _changed_bytes() -> list[Vector]:
    data = WHOLE.encode(KEY)

    def flipped(at: int) -> bytes:
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

    other = sha256(b"another ring")
    untagged = MAGIC + mac(KEY, WHOLE.body) + WHOLE.body
    return [
        _wrong("magic", "one bit of the magic", flipped(3), "MAGIC"),
        _wrong("magic-older", "an earlier format", b"ANTKVM1\n" + data[8:], "MAGIC"),
        _wrong("mac", "one bit of the MAC", flipped(8), "MAC"),
        _wrong("mac-body", "one bit of the seal's id", flipped(40), "MAC"),
        _wrong("mac-last", "one bit of the last length", flipped(len(data) - 1), "MAC"),
        _wrong("mac-cut-off", "the last byte is missing", data[:-1], "MAC"),
        _wrong("mac-cut-short", "the MAC itself is cut off", data[:20], "MAC"),
        _wrong("mac-extended", "a byte of 0 behind the end", data + b"\0", "MAC"),
        _wrong("mac-key", "the key of another ring", data, "MAC", key=other),
        _wrong("mac-untagged", "a MAC without tag", untagged, "MAC"),
    ]


def _wrong_fields() -> list[Vector]:
    """Return manifests that a defective host wrote: their MACs are right."""

    def piece(index: int, **fields: object) -> bytes:
        pieces = list(WHOLE.pieces)
        pieces[index] = replace(pieces[index], **fields)  # type: ignore[arg-type]
        return replace(WHOLE, pieces=tuple(pieces)).encode(KEY)

    def fields(**changed: object) -> bytes:
        return replace(WHOLE, **changed).encode(KEY)  # type: ignore[arg-type]

    over, empty = manifest_of(64, 130, 149), manifest_of(64, 64, 128, 149)
    many = replace(WHOLE, tokens=2, pieces=WHOLE.pieces[:3])
    first = WHOLE.pieces[0].lineage
    return [
        _wrong("end", "a byte behind the last piece", with_mac(WHOLE.body + b"\0", KEY), "END"),
        _wrong("end-early", "the last length has 3 bytes", with_mac(WHOLE.body[:-1], KEY), "END"),
        _wrong("generation", "an id of 31 bytes", fields(generation=bytes(31)), "GENERATION"),
        _wrong("tokens-none", "no tokens and no pieces", fields(tokens=0, pieces=()), "TOKENS"),
        _wrong("tokens-many", "2^24 + 1 tokens", fields(tokens=2**24 + 1), "TOKENS"),
        _wrong("count-none", "no pieces", fields(pieces=()), "COUNT"),
        _wrong("count-few", "two pieces, three groups", manifest_of(64, 149).encode(KEY), "COUNT"),
        _wrong("count-many", "three pieces for two tokens", many.encode(KEY), "COUNT"),
        _wrong("piece-empty", "a piece that ends where it begins", empty.encode(KEY), "PIECE"),
        _wrong("piece-over", "a piece that leaves its group", over.encode(KEY), "PIECE"),
        _wrong(
            "piece-across",
            "one of 60 tokens, in two groups",
            manifest_of(40, 100, 149).encode(KEY),
            "PIECE",
        ),
        _wrong("last-stop", "the last piece ends early", piece(-1, stop=148), "LAST"),
        _wrong("last-lineage", "or has another lineage", piece(-1, lineage=first), "LAST"),
        _wrong("file-above", "a file in another folder", piece(0, file="../manifest"), "FILE"),
        _wrong("file-path", "a path", piece(0, file="a/b"), "FILE"),
        _wrong("file-dot", "a name that begins with a dot", piece(0, file=".."), "FILE"),
        _wrong("file-case", "a capital letter", piece(0, file="A.pack"), "FILE"),
        _wrong("file-none", "a name of no bytes", piece(0, file=""), "FILE"),
        _wrong("file-line-feed", "a line feed behind a name", piece(0, file="a\n"), "FILE"),
        _wrong("file-long", "a name of 65 bytes", piece(0, file="a" * 65), "FILE"),
    ]


def _bounds(name: str, comment: str, start: int, tokens: int) -> Vector:
    pieces = bounds(start, tokens)
    return {
        "name": name,
        "comment": comment,
        "of": "pieces",
        "start": start,
        "tokens": tokens,
        "pieces": pieces,
    }


def _usable(name: str, comment: str, ids: list[int]) -> Vector:
    """Return the tokens of a stored checkpoint that a context of `ids` finds."""
    usable = 0
    for piece in WHOLE.pieces:
        if piece.stop > len(ids) or piece.lineage != lineage_at(ids, piece.stop):
            break
        usable = piece.stop
    return {
        "name": name,
        "comment": comment,
        "of": "usable",
        "key": KEY.hex(),
        "manifest": WHOLE.encode(KEY).hex(),
        "token_ids": ids,
        "usable_tokens": usable,
    }


def _pieces() -> list[Vector]:
    changed = [*IDS[:130], 0, *IDS[131:]]
    return [
        _bounds("pieces", "149 tokens at once", 0, 149),
        _bounds("pieces-first-turn", "the first 70", 0, 70),
        _bounds("pieces-next-turn", "and the rest, from within a group", 70, 149),
        _bounds("pieces-whole", "groups that end with the tokens", 64, 192),
        _bounds("pieces-none", "nothing new", 149, 149),
        _usable("usable", "the same tokens", IDS),
        _usable("usable-longer", "a context that goes on", [*IDS, 1, 2]),
        _usable("usable-shorter", "one that ends within a piece: it is of no use", IDS[:139]),
        _usable("usable-changed", "another token 130", changed),
        _usable("usable-none", "another first token", [0, *IDS[1:]]),
    ]


def build() -> dict[str, object]:
    """Return the file."""
    bare = replace(manifest_of(1), generation=b"")
    long = manifest_of(64, 128, 149, file="a" + "0" * 59 + ".-.9")
    return {
        "file": "manifest",
        "spec": "spec/08-checkpoint §3",
        "comment": "`of` names the computation. manifest: `fields` under the MAC's `key` ↔ `bytes`;"
        " where `rule` is not null the bytes are refused, by that rule of the chapter, and `fields`"
        " is null. pieces: the pieces in which the tokens from `start` on are written. usable: the"
        " first tokens of a checkpoint that a context of `token_ids` may use. `misread`: the MAC"
        " that a misreading would give.",
        "vectors": [
            _valid("whole", "four pieces in three groups", WHOLE),
            _valid("bare", "one token, and no generation", bare),
            _valid("file", "the longest name of a file", long),
            *_changed_bytes(),
            *_wrong_fields(),
            *_pieces(),
        ],
    }
