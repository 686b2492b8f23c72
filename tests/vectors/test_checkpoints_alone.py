"""The vectors of chapter 08, computed from their own inputs and the text of the chapter."""

import math
import re
import struct

import pytest
from blake3 import blake3
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.vectors.plain import Vector, mac, sha256, unhex, vectors_of

# --- lineage: 08 §1, §2, §6 -------------------------------------------------------------------


@pytest.mark.parametrize("vector", vectors_of("lineage", "namespace"))
def test_a_namespace_follows_from_its_fields(vector: Vector) -> None:
    data = b"antiphon/v1/namespace\0"
    for field in vector["fields"]:
        for item in (field["name"].encode(), unhex(field["value"])):
            data += struct.pack("<I", len(item)) + item
    assert data.hex() == vector["pre_image"]
    assert sha256(data).hex() == vector["digest"] not in vector["misread"].values()


@pytest.mark.parametrize("vector", vectors_of("lineage", "salt"))
def test_salts_follow_from_secret_owner_and_readers(vector: Vector) -> None:
    owner_salt = mac(unhex(vector["secret"]), unhex(vector["owner"]))
    assert owner_salt.hex() == vector["owner_salt"]
    data = b"antiphon/v1/domain/marked\0"
    if vector["readers"] is not None:
        data = b"antiphon/v1/domain/readers\0" + b"".join(
            sorted(set(map(unhex, vector["readers"])))
        )
    assert mac(owner_salt, data).hex() == vector["domain_salt"] not in vector["misread"].values()


def _lineage(namespace: bytes, ids: list[int]) -> bytes:
    key = sha256(namespace)
    for at in range(0, len(ids), 16):
        key = sha256(key + b"".join(struct.pack("<I", token) for token in ids[at : at + 16]))
    return key


@pytest.mark.parametrize("vector", vectors_of("lineage", "keys"))
def test_lineage_keys_follow_from_tokens(vector: Vector) -> None:
    for expected in vector["keys"]:
        ids = vector["token_ids"][: expected["tokens"]]
        assert _lineage(unhex(vector["namespace"]), ids).hex() == expected["key"]
    assert vector["keys"][-1]["tokens"] == len(vector["token_ids"])
    assert vector["keys"][-1]["key"] not in vector["misread"].values()


# --- manifests: 08 §3, §4 ---------------------------------------------------------------------


class _BrokenRuleError(Exception):
    pass


def _need(rule: str, *, holds: bool) -> None:
    if not holds:
        raise _BrokenRuleError(rule)


def _decode(data: bytes, key: bytes) -> Vector:
    """Read a manifest as 08 §3 lays it out, by its rules in their order."""
    _need("MAGIC", holds=data[:8] == b"ANTKVM2\n")
    body = data[40:]
    _need("MAC", holds=data[8:40] == mac(key, b"antiphon/v1/checkpoint\0" + body))

    def read(count: int) -> bytes:
        nonlocal body
        _need("END", holds=len(body) >= count)
        found, body = body[:count], body[count:]
        return found

    def number(width: int) -> int:
        return int.from_bytes(read(width), "little")

    found: Vector = {"seal": read(32).hex(), "generation": read(number(1)).hex()}
    found |= {"tokens": number(4), "lineage": read(32).hex(), "namespace": read(32).hex()}
    _need("GENERATION", holds=len(found["generation"]) in (0, 64))
    _need("TOKENS", holds=0 < found["tokens"] <= 2**24)
    count, pieces = number(4), []
    _need("COUNT", holds=math.ceil(found["tokens"] / 64) <= count <= found["tokens"])
    for _ in range(count):
        stop, lineage, digest, name = number(4), read(32), read(32), read(number(1))
        _need("FILE", holds=re.fullmatch(rb"[a-z0-9][a-z0-9.-]{0,63}", name) is not None)
        pieces.append(
            {
                "stop": stop,
                "lineage": lineage.hex(),
                "blake3": digest.hex(),
                "file": name.decode(),
                "offset": str(number(8)),
                "length": number(4),
            }
        )
    _need("END", holds=not body)
    last = pieces[-1]["stop"], pieces[-1]["lineage"]
    _need("LAST", holds=last == (found["tokens"], found["lineage"]))
    start = 0
    for piece in pieces:
        _need("PIECE", holds=start < piece["stop"] <= (start // 64 + 1) * 64)
        start = piece["stop"]
    return found | {"pieces": pieces}


@pytest.mark.parametrize("vector", vectors_of("manifest", "manifest"))
def test_a_manifest_is_read_by_the_rules_of_the_chapter(vector: Vector) -> None:
    rule = fields = None
    try:
        fields = _decode(unhex(vector["bytes"]), unhex(vector["key"]))
    except _BrokenRuleError as error:
        rule = str(error)
    assert (rule, fields) == (vector["rule"], vector["fields"])
    assert vector["bytes"][16:80] not in vector["misread"].values()


@pytest.mark.parametrize("vector", vectors_of("manifest", "pieces"))
def test_pieces_end_at_groups(vector: Vector) -> None:
    ends = [n for n in range(vector["start"] + 1, vector["tokens"] + 1) if not n % 64]
    ends += [vector["tokens"]] if vector["tokens"] not in (vector["start"], *ends) else []
    assert vector["pieces"] == [
        list(pair) for pair in zip([vector["start"], *ends], ends, strict=False)
    ]


@pytest.mark.parametrize("vector", vectors_of("manifest", "usable"))
def test_usable_pieces_have_the_lineage_of_the_tokens(vector: Vector) -> None:
    fields, ids = _decode(unhex(vector["manifest"]), unhex(vector["key"])), vector["token_ids"]
    usable = 0
    for piece in fields["pieces"]:
        key = _lineage(unhex(fields["namespace"]), ids[: piece["stop"]])
        if piece["stop"] > len(ids) or key.hex() != piece["lineage"]:
            break
        usable = piece["stop"]
    assert usable == vector["usable_tokens"]


# --- archives: 08 §8 --------------------------------------------------------------------------


def _archive_keys(vector: Vector, salt: bytes, conversation: bytes) -> tuple[bytes, bytes]:
    info = b"antiphon/v1/archive\0" + conversation + unhex(vector["namespace"])
    extracted = mac(salt, unhex(vector["secret"]))
    key = mac(extracted, info + b"\1")
    return key, mac(extracted, key + info + b"\2")


def _nonce(number: int, total: int) -> bytes:
    return number.to_bytes(11, "big") + bytes([number == total - 1])


@pytest.mark.parametrize("vector", vectors_of("archive", "archive"))
def test_an_archive_follows_from_a_checkpoint(vector: Vector) -> None:
    salt, conversation = unhex(vector["salt"]), unhex(vector["conversation"])
    key, commitment = _archive_keys(vector, salt, conversation)
    assert (key.hex(), commitment.hex()) == (vector["key"], vector["commitment"])
    assert vector["key"] not in vector["misread"].values()
    payloads = [
        (unhex(p["pattern"]) * (p["length"] // 32 + 1))[: p["length"]] for p in vector["payloads"]
    ]
    pieces = vector["manifest"]["pieces"]
    assert [p["blake3"] for p in pieces] == [blake3(p).hexdigest() for p in payloads]
    manifest = _encode(vector["manifest"], key)
    assert len(manifest) == vector["manifest_bytes"]
    content = struct.pack("<I", len(manifest)) + manifest + b"".join(payloads)
    texts = [content[at : at + 262_128] for at in range(0, len(content), 262_128)]
    chunks = [
        AESGCM(key).encrypt(_nonce(number, len(texts)), text, None)
        for number, text in enumerate(texts)
    ]
    assert [(len(c), sha256(c).hex()) for c in chunks] == [
        (c["length"], c["sha256"]) for c in vector["chunks"]
    ]
    data = b"ANTKVA1\n" + conversation + salt + commitment + b"".join(chunks)
    assert sha256(data).hex() == vector["sha256"]
    assert vector["bytes"] in (None, data.hex())


def _encode(fields: Vector, key: bytes) -> bytes:
    generation = unhex(fields["generation"])
    body = unhex(fields["seal"]) + bytes([len(generation)]) + generation
    body += (
        struct.pack("<I", fields["tokens"]) + unhex(fields["lineage"]) + unhex(fields["namespace"])
    )
    body += struct.pack("<I", len(fields["pieces"]))
    for piece in fields["pieces"]:
        file = piece["file"].encode()
        body += struct.pack("<I", piece["stop"]) + unhex(piece["lineage"]) + unhex(piece["blake3"])
        body += (
            bytes([len(file)]) + file + struct.pack("<QI", int(piece["offset"]), piece["length"])
        )
    return b"ANTKVM2\n" + mac(key, b"antiphon/v1/checkpoint\0" + body) + body


@pytest.mark.parametrize("vector", vectors_of("archive", "refused"))
def test_a_wrong_archive_is_refused_before_anything_is_kept(vector: Vector) -> None:
    assert _reason_of(vector, unhex(vector["bytes"])) == vector["reason"]


def _reason_of(vector: Vector, data: bytes) -> str | None:
    header, rest = data[:104], data[104:]
    if len(header) < 104 or header[:8] != b"ANTKVA1\n":
        return "ARCHIVE_INVALID"
    key, commitment = _archive_keys(vector, header[40:72], header[8:40])
    if commitment != header[72:]:
        return "ARCHIVE_FOREIGN"
    chunks = [rest[at : at + 262_144] for at in range(0, len(rest), 262_144)]
    try:
        texts = [
            AESGCM(key).decrypt(_nonce(n, len(chunks)), chunk, None)
            for n, chunk in enumerate(chunks)
        ]
        content = b"".join(texts)
        length = int.from_bytes(content[:4], "little")
        manifest = _decode(content[4 : 4 + length], key)
    except Exception:  # noqa: BLE001  # whatever it is, the archive is of no use
        return "ARCHIVE_INVALID"
    if manifest["namespace"] != vector["namespace"]:
        return "ARCHIVE_FOREIGN"
    end, payloads = 0, content[4 + length :]
    for piece in manifest["pieces"]:
        if (piece["file"], int(piece["offset"])) != ("archive", end):
            return "ARCHIVE_INVALID"
        payload = payloads[end : end + piece["length"]]
        if blake3(payload).hexdigest() != piece["blake3"]:
            return "ARCHIVE_INVALID"
        end += piece["length"]
    return None if len(content) == 4 + length + end else "ARCHIVE_INVALID"
