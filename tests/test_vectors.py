"""The vectors of spec/vectors, run against the code; document.json has a test of its own."""

import hashlib
import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from antiphon.conformance.answers import answer
from antiphon.conformance.questions import cases_of, differences
from model_host.sampling.sampler import RECIPE, RECIPE_DIGEST, Sampler
from replica.conversation.keys import call_digest, key_digest
from replica.errors import EntryRefused
from replica.ids import ENTRY_TAG, PublicKey, pae
from replica.log import codec
from replica.log.body import CallKey, Request, Sampling, Text
from replica.log.entry import body_digest
from replica.order.verdict import VoidReason
from spec.vectors.make.__main__ import ALL, FILES, FOLDER, text
from tests.support.sampling import sampled

Vector = dict[str, Any]


def _file(name: str) -> Vector:
    return json.loads((FOLDER / name).read_text())


def _vectors(name: str) -> list[Any]:
    vectors = _file(name)["vectors"]
    return [pytest.param(v, id=f"{i}-{v['name']}") for i, v in enumerate(vectors)]


# --- the files themselves -----------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_the_generators_yield_the_committed_files(name: str) -> None:
    assert (FOLDER / name).read_text() == text(name)


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(_file("schema.json"))


@pytest.mark.parametrize("name", FILES)
def test_every_file_obeys_the_schema(name: str) -> None:
    validator = jsonschema.Draft202012Validator(_file("schema.json"))
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


# --- the core, as the kit asks it ------------------------------------------------


def _wrong(file: str) -> dict[str, list[str]]:
    """Return the differences between our answers and those that a file requires, by case."""
    cases = list(cases_of(file, _file(f"{file}.json")))
    assert cases
    answered = ((case.name, differences(case, answer(case.question))) for case in cases)
    return {name: found for name, found in answered if found}


def test_a_header_is_read_hashed_and_signed_as_the_vector_says() -> None:
    assert _wrong("entry") == {}


@pytest.mark.parametrize("vector", _vectors("entry.json"))
def test_an_id_hashes_the_tag_and_both_lengths(vector: Vector) -> None:
    data = bytes.fromhex(vector["header"])
    assert pae(ENTRY_TAG, data).hex() == vector["id_pre_image"]
    assert hashlib.sha256(bytes.fromhex(vector["id_pre_image"])).hexdigest() == vector["id"]
    digest = body_digest(bytes.fromhex(vector["body"]))
    assert digest.hex() == vector["fields"]["body_digest"]


def test_the_strict_subset_refuses_what_the_vector_says() -> None:
    assert _wrong("wire") == {}


def test_a_signature_is_accepted_by_the_rules_alone() -> None:
    assert _wrong("signature") == {}


def test_admission_gives_the_verdict_of_the_vector() -> None:
    assert _wrong("admission") == {}


def test_visibility_is_what_the_vector_says_in_any_order_of_arrival() -> None:
    assert _wrong("visibility") == {}


def test_order_is_what_the_vector_says_in_any_order_of_arrival() -> None:
    assert _wrong("order") == {}


def test_the_digest_hashes_sorted_heads() -> None:
    assert _wrong("digest") == {}


def test_a_call_key_has_the_digests_of_the_vector() -> None:
    assert _wrong("call-key") == {}


@pytest.mark.parametrize("vector", _vectors("call-key.json"))
def test_a_request_carries_the_call_key_of_the_vector(vector: Vector) -> None:
    author = PublicKey(bytes.fromhex(vector["author"]))
    key = CallKey(key_digest(author, vector["text"]), call_digest((Text(vector["words"]),)), 2)
    body = Request(author, Sampling(), key=key)
    assert bytes.fromhex(vector["call_key"]) in codec.encode_body(body)


# --- sampler -------------------------------------------------------------------------


def test_the_sampling_recipe_has_the_digest_of_the_file() -> None:
    recipe = _file("sampler.json")["recipe"]
    assert recipe == {"bytes": RECIPE.encode().hex(), "digest": RECIPE_DIGEST.hex()}


@pytest.mark.parametrize("vector", _vectors("sampler.json"))
def test_the_sampler_chooses_the_token_of_the_vector(vector: Vector) -> None:
    logits = np.frombuffer(bytes.fromhex(vector["logits"]), "<f4")
    result = vector["weights"], vector["token"], vector["recorded"]
    assert sampled(Sampler(), logits, vector) == result


def test_the_folder_holds_nothing_but_vectors_and_their_makers() -> None:
    known = {*ALL, "schema.json"}
    assert {p.name for p in Path(FOLDER).glob("*.json")} <= known
