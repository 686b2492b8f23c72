"""The vectors of chapters 07 and 08, run against the code; sampler.json is in test_vectors."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from antiphon.conformance.answers import draft_of
from antiphon.v1 import host_pb2
from model_host.errors import ArchiveError, CheckpointCorrupt
from model_host.io.files.archive_files import store_archive
from model_host.io.files.checkpoint_files import Checkpoints
from model_host.kv import domain_salt
from model_host.kv.archive import (
    ARCHIVE_CHUNK_BYTES,
    ARCHIVE_HEADER_BYTES,
    Archive,
    conversation_of,
    encrypt_archive,
)
from model_host.kv.checkpoint import (
    Manifest,
    Piece,
    decode_manifest,
    encode_manifest,
    piece_bounds,
    usable_tokens,
)
from model_host.kv.lineage import Lineage
from model_host.kv.memory import Bytes
from model_host.kv.namespace import Namespace
from model_host.profiles import Profile
from model_host.sampling import Sampler
from replica.conversation import (
    Draft,
    DraftStream,
    Finding,
    Receipt,
    ReceiptInvalid,
    check_receipt,
    sign_draft,
    sign_receipt,
    start_digest,
    verify_draft,
)
from replica.conversation.receipt import check_findings
from replica.errors import EntryRefused
from replica.ids import ConversationId, Digest, EntryId, PublicKey
from replica.io.calls.replays import decode_receipt
from spec.vectors.make.__main__ import FOLDER
from tests.support.sampling import mask_as_given, sampled, state_as_given

Vector = dict[str, Any]


def _vectors(name: str, of: str | None = None) -> list[Any]:
    vectors = json.loads((FOLDER / name).read_text())["vectors"]
    return [pytest.param(v, id=v["name"]) for v in vectors if v.get("of") == of]


def _key(vector: Vector) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(vector["private_key"]))


# --- the draw ---------------------------------------------------------------------------------


@pytest.mark.parametrize("vector", _vectors("draw.json"))
def test_the_numbers_of_a_draw_are_those_of_the_vector(vector: Vector) -> None:
    given = vector | {"logprobs": 0}
    logits = np.frombuffer(bytes.fromhex(vector["logits"]), "<f4")
    scores = state_as_given(given).scores(logits, mask_as_given(given))
    assert scores.astype("<f4").tobytes().hex() == vector["scores"]
    kept, token, _ = sampled(Sampler(), logits, given)
    assert (kept, token) == (vector["kept"], vector["token"])


# --- profiles ---------------------------------------------------------------------------------


@pytest.mark.parametrize("vector", _vectors("profile.json"))
def test_a_profile_has_the_digest_of_the_vector(vector: Vector) -> None:
    raw = vector["fields"]
    assert list(raw) == [field.name for field in fields(Profile)]
    given = {n: Digest(bytes.fromhex(v)) if n.endswith("_digest") else v for n, v in raw.items()}
    assert Profile(**given).digest.hex() == vector["digest"]


# --- drafts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("vector", _vectors("drafts.json"))
def test_drafts_are_signed_and_received_as_the_vector_says(vector: Vector) -> None:
    frames = [draft_of(vector, raw) for raw in vector["frames"]]
    stream = DraftStream(frames[0].conversation, frames[0].request, frames[0].run)
    assert start_digest(stream.request, stream.run).hex() == vector["start_digest"]
    host = PublicKey(bytes.fromhex(vector["host"]))
    *before, last = [_received(stream, frame, host) for frame in frames]
    assert all(before)
    assert last == (vector["rule"] is None)
    if not last:
        assert _received(stream, draft_of(vector, vector["then"]), host)
    if vector["rule"] is None:
        assert stream.digest == frames[-1].digest
        assert [sign_draft(frame, _key(vector)) for frame in frames] == frames


def _received(stream: DraftStream, frame: Draft, host: PublicKey) -> bool:
    try:
        verify_draft(frame, host)
    except EntryRefused:
        return False
    return stream.receive(frame)


# --- receipts ---------------------------------------------------------------------------------


def _finding(raw: Vector) -> Finding:
    ids = {name: bytes.fromhex(raw[name]) for name in ("answer", "render_digest")}
    return Finding(**raw | ids, seal=EntryId(b"any"), detail="any", entry=EntryId(b"any"))


def _receipt(vector: Vector) -> Receipt:
    return decode_receipt(bytes.fromhex(vector["message"]))


@pytest.mark.parametrize("vector", _vectors("receipt.json"))
def test_a_receipt_is_what_the_vector_says(vector: Vector) -> None:
    findings = [*map(_finding, vector["findings"])]
    try:
        receipt = _receipt(vector)
        check_receipt(receipt)
    except ReceiptInvalid:
        assert vector["rule"] in ("SIGNATURE", "ID", "ORDER")
        return
    if vector["rule"] is not None:
        assert vector["rule"] == "FINDINGS"
        with pytest.raises(ReceiptInvalid):
            check_findings(receipt, findings)
        return
    check_findings(receipt, findings)
    assert sign_receipt(receipt, _key(vector)) == receipt
    raw = vector["receipt"]
    for name in ("first_token", "mode", "outcome", "first_cause"):
        assert getattr(receipt, name) == raw[name]
    further = [{n: v.hex() for n, v in asdict(judge).items()} for judge in receipt.further]
    assert further == raw.get("further", [])
    assert str(receipt.time_ms) == raw["create_time_ms"]
    assert host_pb2.Receipt.FromString(bytes.fromhex(vector["message"])).entries == int(
        raw["entries"]
    )


# --- lineage ----------------------------------------------------------------------------------


@pytest.mark.parametrize("vector", _vectors("lineage.json", "namespace"))
def test_a_namespace_has_the_digest_of_the_vector(vector: Vector) -> None:
    raw = {field["name"]: bytes.fromhex(field["value"]) for field in vector["fields"]}
    assert list(raw) == [field.name for field in fields(Namespace)]
    kinds = Namespace.__annotations__
    values = {n: v if kinds[n] is bytes else v.decode() for n, v in raw.items()}
    assert Namespace(**values).digest.hex() == vector["digest"]  # type: ignore[arg-type]


@pytest.mark.parametrize("vector", _vectors("lineage.json", "salt"))
def test_a_domain_has_the_salt_of_the_vector(vector: Vector) -> None:
    readers = vector["readers"]
    keys = None if readers is None else [bytes.fromhex(reader) for reader in readers]
    salt = domain_salt(bytes.fromhex(vector["owner_salt"]), keys)
    assert salt.hex() == vector["domain_salt"]


@pytest.mark.parametrize("vector", _vectors("lineage.json", "keys"))
def test_tokens_have_the_lineage_keys_of_the_vector(vector: Vector) -> None:
    lineage = Lineage(bytes.fromhex(vector["namespace"]), vector["token_ids"])
    for expected in vector["keys"]:
        assert lineage.at(expected["tokens"]).hex() == expected["key"]


# --- manifests --------------------------------------------------------------------------------


def _manifest(raw: Vector) -> Manifest:
    pieces = tuple(
        Piece(
            p["stop"], bytes.fromhex(p["lineage"]), bytes.fromhex(p["blake3"]), p["file"],
            int(p["offset"]), p["length"],
        )
        for p in raw["pieces"]
    )  # fmt: skip
    ids = [bytes.fromhex(raw[name]) for name in ("seal", "generation", "lineage", "namespace")]
    return Manifest(ids[0], ids[1], raw["tokens"], ids[2], ids[3], pieces)


@pytest.mark.parametrize("vector", _vectors("manifest.json", "manifest"))
def test_a_manifest_is_read_and_written_as_the_vector_says(vector: Vector) -> None:
    data, key = bytes.fromhex(vector["bytes"]), bytes.fromhex(vector["key"])
    if vector["rule"] is not None:
        with pytest.raises(CheckpointCorrupt):
            decode_manifest(data, key)
        return
    expected = _manifest(vector["fields"])
    assert decode_manifest(data, key) == expected
    assert encode_manifest(expected, key) == data
    for at in range(len(data)):
        with pytest.raises(CheckpointCorrupt):
            decode_manifest(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :], key)
        with pytest.raises(CheckpointCorrupt):
            decode_manifest(data[:at], key)


@pytest.mark.parametrize("vector", _vectors("manifest.json", "pieces"))
def test_tokens_are_written_in_the_pieces_of_the_vector(vector: Vector) -> None:
    pieces = [list(piece) for piece in piece_bounds(vector["start"], vector["tokens"])]
    assert pieces == vector["pieces"]


@pytest.mark.parametrize("vector", _vectors("manifest.json", "usable"))
def test_a_context_may_use_the_tokens_of_the_vector(vector: Vector) -> None:
    manifest = decode_manifest(bytes.fromhex(vector["manifest"]), bytes.fromhex(vector["key"]))
    lineage = Lineage(manifest.namespace, vector["token_ids"])
    assert usable_tokens(manifest, manifest.namespace, lineage) == vector["usable_tokens"]


# --- archives ---------------------------------------------------------------------------------


def _chunks(data: bytes) -> Iterator[bytes]:
    for at in range(ARCHIVE_HEADER_BYTES, len(data), ARCHIVE_CHUNK_BYTES):
        yield data[at : at + ARCHIVE_CHUNK_BYTES]


def _opened(vector: Vector, data: bytes) -> tuple[Manifest, list[bytes]]:
    header = data[:ARCHIVE_HEADER_BYTES]
    conversation_of(header)
    ring, namespace = bytes.fromhex(vector["secret"]), bytes.fromhex(vector["namespace"])
    archive = Archive(ring, namespace, header, _chunks(data))
    manifest = archive.manifest()
    return manifest, [payload.tobytes() for payload in archive.payloads(manifest)]


def _payloads(vector: Vector) -> list[Bytes]:
    made = []
    for raw in vector["payloads"]:
        pattern, length = bytes.fromhex(raw["pattern"]), raw["length"]
        made.append(np.frombuffer((pattern * (length // 32 + 1))[:length], np.uint8))
    return made


@pytest.mark.parametrize("vector", _vectors("archive.json", "archive"))
def test_an_archive_has_the_bytes_of_the_vector(vector: Vector) -> None:
    names = ("secret", "conversation", "salt")
    secret, conversation, salt = (bytes.fromhex(vector[name]) for name in names)
    manifest, payloads = _manifest(vector["manifest"]), _payloads(vector)
    data = b"".join(encrypt_archive(secret, conversation, salt, manifest, payloads))
    if vector["bytes"] is not None:
        assert data.hex() == vector["bytes"]
    assert [len(chunk) for chunk in _chunks(data)] == [c["length"] for c in vector["chunks"]]
    assert hashlib.sha256(data).hexdigest() == vector["sha256"]
    assert _opened(vector, data) == (manifest, [payload.tobytes() for payload in payloads])


@pytest.mark.parametrize("vector", _vectors("archive.json", "refused"))
def test_an_archive_is_refused_for_the_reason_of_the_vector(vector: Vector, tmp_path: Path) -> None:
    data, file = bytes.fromhex(vector["bytes"]), tmp_path / "archive"
    file.write_bytes(data)
    names = ("secret", "conversation", "namespace")
    secret, conversation, namespace = (bytes.fromhex(vector[name]) for name in names)
    store = Checkpoints(tmp_path / "stored", mac_key=bytes(32), budget_bytes=1 << 24)
    with pytest.raises(ArchiveError) as refused, file.open("rb", buffering=0) as given:
        conversation_of(data[:ARCHIVE_HEADER_BYTES])
        store_archive(given, store, secret, ConversationId(conversation), namespace, 16)
    assert refused.value.reason == vector["reason"]
