"""The vectors of spec/vectors, run against the code; document.json has a test of its own."""

import json
import random
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from antiphon.v1 import log_pb2 as pb
from model_host.sampler import Sampler
from replica.conversation.conversation import Conversation
from replica.conversation.next_seal import sealable
from replica.errors import AntiphonError, EntryRefused
from replica.ids import ENTRY_TAG, ConversationId, Digest, EntryId, Lane, Position, PublicKey, pae
from replica.log import codec, wire
from replica.log.admission import Admitted, Duplicate, Pending
from replica.log.codec.entries import shape_of
from replica.log.digest import digest_of
from replica.log.entry import Entry, Header, body_digest, entry_id, sign, verify
from replica.log.log import Log
from replica.order.tail import frontier, tail
from replica.order.verdict import VoidReason
from spec.vectors.make.__main__ import FILES, FOLDER, text
from tests.support.sampling import sampled

Vector = dict[str, Any]
SHUFFLES = 8


def _file(name: str) -> Vector:
    return json.loads((FOLDER / name).read_text())


def _vectors(name: str) -> list[Any]:
    vectors = _file(name)["vectors"]
    return [pytest.param(v, id=f"{i}-{v['name']}") for i, v in enumerate(vectors)]


def _entry(raw: Vector) -> Entry:
    header, signature = bytes.fromhex(raw["header"]), bytes.fromhex(raw["signature"])
    body = None if raw["body"] is None else bytes.fromhex(raw["body"])
    return codec.decode_entry(header, signature, body)


# --- the files themselves -----------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_the_generators_yield_the_committed_files(name: str) -> None:
    assert (FOLDER / name).read_text() == text(name)


@pytest.mark.parametrize("name", FILES)
def test_every_file_obeys_the_schema(name: str) -> None:
    schema = json.loads((FOLDER / "schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    vectors = _file(name)
    assert list(validator.iter_errors(vectors)) == []
    for wrong in ({**vectors, "file": "another"}, {**vectors, "vectors": [{}]}):
        assert not validator.is_valid(wrong)


def test_admission_vectors_name_every_reason_that_admission_yields() -> None:
    named = {v["reason"] for v in _file("admission.json")["vectors"]} - {None}
    refusals = [c for c in EntryRefused.__subclasses__() if c.__module__ == "replica.refusals"]
    assert named == {cls.reason for cls in refusals}


def test_order_vectors_name_every_way_a_seal_is_void() -> None:
    seals = [s for v in _file("order.json")["vectors"] for s in v["seals"].values()]
    assert {s["reason"] for s in seals if s["verdict"] == "void"} == set(VoidReason.__members__)


# --- entries --------------------------------------------------------------------


@pytest.mark.parametrize("vector", _vectors("entry.json"))
def test_a_header_is_read_hashed_and_signed_as_the_vector_says(vector: Vector) -> None:
    data, fields = bytes.fromhex(vector["header"]), vector["fields"]
    expected = Header(
        conversation=ConversationId(bytes.fromhex(fields["conversation"])) or None,
        author=PublicKey(bytes.fromhex(fields["author"])),
        epoch=int(fields["epoch"]),
        track=fields["track"],
        seq=fields["seq"],
        prev=EntryId(bytes.fromhex(fields["prev"])) or None,
        parents=tuple(EntryId(bytes.fromhex(p)) for p in fields["parents"]),
        basis=EntryId(bytes.fromhex(fields["basis"])) or None,
        lamport=fields["lamport"],
        kind=fields["kind"],
        critical=fields["critical"],
        body_digest=Digest(bytes.fromhex(fields["body_digest"])),
        body_bytes=fields["body_bytes"],
        create_time_ms=fields["create_time_ms"],
        conflict=fields["conflict"],
    )
    assert codec.decode_header(data) == expected
    assert (codec.encode_header(expected) == data) == vector["canonical"]
    assert pae(ENTRY_TAG, data).hex() == vector["id_pre_image"]
    assert entry_id(data).hex() == vector["id"]
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(vector["private_key"]))
    assert sign(data, key).hex() == vector["signature"]
    assert body_digest(bytes.fromhex(vector["body"])) == expected.body_digest


@pytest.mark.parametrize("vector", _vectors("wire.json"))
def test_the_strict_subset_refuses_what_the_vector_says(vector: Vector) -> None:
    shape = shape_of(getattr(pb, vector["message"]).DESCRIPTOR)
    assert _reason(lambda: wire.check(bytes.fromhex(vector["bytes"]), shape)) == vector["reason"]


@pytest.mark.parametrize("vector", _vectors("signature.json"))
def test_a_signature_is_accepted_by_the_rules_alone(vector: Vector) -> None:
    key, message = bytes.fromhex(vector["public_key"]), bytes.fromhex(vector["message"])
    signature = bytes.fromhex(vector["signature"])
    assert _reason(lambda: verify(PublicKey(key), signature, message)) == vector["reason"]


def _reason(call: Any) -> str | None:
    try:
        call()
    except AntiphonError as error:
        return error.reason
    return None


# --- admission --------------------------------------------------------------------

ADMISSION = _file("admission.json")


@pytest.mark.parametrize("vector", _vectors("admission.json"))
def test_admission_gives_the_verdict_of_the_vector(vector: Vector) -> None:
    entries = ADMISSION["entries"]
    raw = entries[vector["entry"]]
    begins = not vector["given"] and vector["verdict"] != "pending"
    log = Log(ConversationId(bytes.fromhex(raw["id"] if begins else ADMISSION["conversation"])))
    for name in vector["given"]:
        log.admit(_entry(entries[name]))
    try:
        verdict = log.admit(_entry(raw))
    except EntryRefused as error:
        assert (vector["verdict"], vector["reason"]) == ("refused", error.reason), error.detail
        return
    names = {bytes.fromhex(e["id"]): n for n, e in entries.items()}
    match verdict:
        case Admitted(admitted):
            assert vector["verdict"] == "admitted"
            assert [names[e.id] for e in admitted] == vector["admitted"]
        case Pending(missing):
            assert vector["verdict"] == "pending"
            assert sorted(i.hex() for i in missing) == sorted(vector["missing"])
        case Duplicate():
            assert vector["verdict"] == "duplicate"


# --- visibility, order, digest -------------------------------------------------------


def _conversations(vector: Vector) -> list[Conversation]:
    """Admit all entries in several orders; only entries that no order admits may be left."""
    entries = [_entry(raw) for raw in vector["entries"].values()]
    built = []
    for seed in range(SHUFFLES):
        held = Conversation(ConversationId(bytes.fromhex(vector["conversation"])))
        order = list(entries)
        if seed:
            random.Random(seed).shuffle(order)
        for entry in order:
            held.admit(entry)
        assert not held.log.pending
        built.append(held)
    return built


def _names(vector: Vector) -> dict[bytes, str]:
    return {bytes.fromhex(e["id"]): n for n, e in vector["entries"].items()}


@pytest.mark.parametrize("vector", _vectors("visibility.json"))
def test_visibility_is_what_the_vector_says_in_any_order_of_arrival(vector: Vector) -> None:
    names = _names(vector)
    keys = {bytes.fromhex(k): n for n, k in vector["keys"].items()}
    for held in _conversations(vector):
        log, membership = held.log, held.log.membership
        visible = {names[i] for i, e in log.entries.items() if membership.is_visible(e)}
        assert visible == set(vector["visible"])
        assert visible.isdisjoint(vector["void"])
        members = {
            keys[key]: sorted(role.name for role in roles)
            for key, roles in membership.roles.items()
            if membership.is_member(key)
        }
        assert members == vector["members"]
        assert {names[i] for i in log.covered()} == set(vector["covered"])
        assert log.digest.hex() == vector["digest"]


@pytest.mark.parametrize("vector", _vectors("order.json"))
def test_order_is_what_the_vector_says_in_any_order_of_arrival(vector: Vector) -> None:
    names = _names(vector)
    ids = {n: EntryId(i) for i, n in names.items()}
    for held in _conversations(vector):
        order = held.order
        for name, expected in vector["seals"].items():
            assert _seal_verdict(held, ids[name], names) == expected, name
        assert [names[n.id] for n in order.tips()] == vector["tips"]
        for asked, answer in vector["answers"].items():
            generation = order.generation_of(ids[asked])
            assert (names[generation] if generation else None) == answer, asked
        for asked, expected in vector["sealable"].items():
            assert _sealable(held, ids[asked], names) == expected, asked
        for expected in vector["tails"]:
            tip = order.nodes[ids[expected["tip"]]] if expected["tip"] else None
            assert [names[e.id] for e in tail(order, tip)] == expected["entries"]
            assert sorted(names[i] for i in frontier(order, tip)) == expected["frontier"]


def _seal_verdict(held: Conversation, seal: EntryId, names: dict[bytes, str]) -> Vector:
    order = held.order
    node = order.nodes.get(seal)
    assert (node is None) or (seal not in order.void)
    if node is None:
        reason = order.void.get(seal)
        return {"verdict": "void", "reason": reason.name} if reason else {"verdict": "uncovered"}
    return {
        "verdict": "counts",
        "prev_seal": names[node.parent.id] if node.parent else None,
        "context": [names[e.id] for e in order.context(seal)],
        "context_digest": node.seal.context_digest.hex(),
    }


def _sealable(held: Conversation, asked: EntryId, names: dict[bytes, str]) -> Vector | None:
    found = sealable(held, asked)
    if found is None:
        return None
    prev_seal = names[found.parent.id] if found.parent else None
    return {"prev_seal": prev_seal, "entries": [names[i] for i in found.entries]}


@pytest.mark.parametrize("vector", _vectors("digest.json"))
def test_the_digest_hashes_sorted_heads(vector: Vector) -> None:
    heads = [
        Position(
            Lane(PublicKey(bytes.fromhex(h["author"])), int(h["epoch"]), h["track"]),
            h["seq"],
            EntryId(bytes.fromhex(h["id"])),
        )
        for h in vector["heads"]
    ]
    assert digest_of(sorted(heads)).hex() == vector["digest"]


# --- sampler -------------------------------------------------------------------------


@pytest.mark.parametrize("vector", _vectors("sampler.json"))
def test_the_sampler_chooses_the_token_of_the_vector(vector: Vector) -> None:
    logits = np.frombuffer(bytes.fromhex(vector["logits"]), "<f4")
    result = vector["weights"], vector["token"], vector["recorded"]
    assert sampled(Sampler(), logits, vector) == result


def test_the_folder_holds_nothing_but_vectors_and_their_makers() -> None:
    known = {*FILES, "schema.json", "document.json"}
    assert {p.name for p in Path(FOLDER).glob("*.json")} <= known
