"""spec/vectors/document.json: this implementation agrees with it in any order."""

import json
import random
import re
from typing import Any

import pytest

from replica.document.canonical import canonical_json, plain
from replica.document.fold import NotCausal
from replica.document.projection import Document, Update, client_id, entry_client, project
from replica.ids import EntryId, Lane, PublicKey
from spec.vectors.make.__main__ import FOLDER, text
from tests.replica.document.document_writer import assert_all_agree

VECTORS: dict[str, Any] = json.loads((FOLDER / "document.json").read_text())
CASES: list[dict[str, Any]] = VECTORS["cases"]


def entries_of(case: dict[str, Any]) -> list[Update]:
    return [
        Update(
            EntryId(bytes.fromhex(entry["id"])),
            lane_of(entry),
            entry["seq"],
            EntryId(bytes.fromhex(entry["prev"])) if entry["prev"] else None,
            tuple(EntryId(bytes.fromhex(parent)) for parent in entry["parents"]),
            entry["lamport"],
            bytes.fromhex(entry["update"]),
        )
        for entry in case["entries"]
    ]


def lane_of(value: dict[str, Any]) -> Lane:
    return Lane(PublicKey(bytes.fromhex(value["author"])), int(value["epoch"]), value["track"])


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["name"]))
def test_a_case_gives_its_projection_in_every_order(case: dict[str, Any]) -> None:
    entries = entries_of(case)
    if "refused" in case:
        for given in (lambda: project(entries), lambda: Document(entries)):
            with pytest.raises(NotCausal) as refusal:
                given()
            assert refusal.value.reason == case["refused"]
        return
    found = assert_all_agree(entries, random.Random(0), rounds=8)
    assert {entry.hex(): reason for entry, reason in found.void.items()} == case["void"]
    projection = {"annotations": found.annotations, "branches": found.branches, "meta": found.meta}
    assert projection == case["projection"]
    assert found.digest.hex() == case["digest"]


def test_every_reason_an_update_is_void_for_has_a_case() -> None:
    reasons = {reason for case in CASES for reason in case.get("void", {}).values()}
    assert reasons == {
        f"DOCUMENT_{word}"
        for word in (
            "TOO_LARGE",
            "MALFORMED",
            "NESTING_TOO_DEEP",
            "VALUE_REFUSED",
            "CLIENT_FOREIGN",
            "CLOCK_GAP",
            "CONTENT_REFUSED",
            "ROOT_UNKNOWN",
            "ORIGIN_UNKNOWN",
        )
    }


def test_client_ids_are_those_of_the_vectors() -> None:
    for item in VECTORS["clients"]:
        assert client_id(lane_of(item)) == item["client_id"]
    for item in VECTORS["entry_clients"]:
        assert entry_client(EntryId(bytes.fromhex(item["id"]))) == item["client_id"]


def test_canonical_json_is_that_of_the_vectors() -> None:
    for item in VECTORS["canonical"]:
        assert canonical_json(plain(item["value"])).hex() == item["bytes"]


def test_the_vectors_are_those_their_generator_writes() -> None:
    assert text("document.json") == (FOLDER / "document.json").read_text()


def test_the_example_of_the_chapter_is_right() -> None:
    chapter = (FOLDER.parent / "06-document.md").read_text()
    block = re.search(r"```hex\n(.*?)```", chapter, re.DOTALL)
    assert block is not None
    data = bytes.fromhex("".join(line.split("   ")[0] for line in block[1].splitlines()))
    author = Lane(PublicKey(b"\x01" * 32), 7, 2)
    example = Update(EntryId(bytes(32)), author, 0, None, (), 1, data)
    found = project([example])
    assert (found.meta, found.void) == ({"title": "Fugue"}, {})
    assert str(client_id(author)) in chapter
    named = EntryId(bytes.fromhex(VECTORS["entry_clients"][0]["id"]))
    assert f"`{named.hex()[:8]}…`" in chapter
    assert str(entry_client(named)) in chapter


def test_every_requirement_with_a_case_is_in_the_chapter() -> None:
    chapter = (FOLDER.parent / "06-document.md").read_text()
    stated = re.findall(r"\*\*(DOC-\d+)\*\*", chapter)
    assert stated == [f"DOC-{number}" for number in range(1, len(stated) + 1)]
    assert {case["requirement"] for case in CASES} <= set(stated)
