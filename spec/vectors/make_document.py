"""Write spec/vectors/document.json: one case per reason for a void update, and valid tracks.

Run `python spec/vectors/make_document.py`; the same code gives the same bytes.
Entry ids here are hashes of labels: a document only compares and sorts them.
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from replica.document.canonical import Json, canonical_json
from replica.document.fold import NotCausal
from replica.document.lib0 import NESTING_MAX, text
from replica.document.projection import Update, client_id, entry_client, project
from replica.document.yjs import (
    EMPTY_UPDATE,
    Content,
    DecodedUpdate,
    Deletion,
    Struct,
    StructId,
    encode_update,
)
from replica.ids import EntryId, Lane, PublicKey, Track

TARGET = Path(__file__).with_name("document.json")
SEAL_HEX = "5e" * 32


def lane(author: int) -> Lane:
    return Lane(PublicKey(bytes([author]) * 32), 7, Track.DOCUMENT)


def label_id(label: str) -> EntryId:
    return EntryId(hashlib.sha256(label.encode()).digest())


class Case:
    """One track: entries by label, in the order they were written."""

    def __init__(self, name: str, requirement: str) -> None:
        self.name, self.requirement = name, requirement
        self.entries: dict[str, Update] = {}
        genesis = Lane(PublicKey(bytes(32)), 0, Track.ALL)
        self.entries["genesis"] = Update(label_id("genesis"), genesis, 0, None, (), 0, EMPTY_UPDATE)

    def add(
        self, label: str, data: bytes, *, by: int = 1, on: str = "genesis", prev: str | None = None
    ) -> None:
        follows = [self.entries[name] for name in on.split()]
        before = self.entries[prev] if prev else None
        lamport = 1 + max(entry.lamport for entry in [*follows, *([before] if before else [])])
        self.entries[label] = Update(
            label_id(label),
            lane(by),
            before.seq + 1 if before else 0,
            before.id if before else None,
            tuple(sorted(entry.id for entry in follows)),
            lamport,
            data,
        )

    def name_of(self, label: str, clock: int = 0) -> StructId:
        return StructId(entry_client(label_id(label)), clock)

    def json(self, left_out: str = "") -> dict[str, Any]:
        given = [entry for label, entry in self.entries.items() if label != left_out]
        case: dict[str, Any] = {"name": self.name, "requirement": self.requirement}
        case["entries"] = [entry_json(entry) for entry in given]
        try:
            said = project(given)
        except NotCausal as refusal:
            return case | {"refused": refusal.reason}
        return case | {
            "void": {entry.hex(): reason for entry, reason in said.void.items()},
            "projection": {
                "annotations": said.annotations,
                "branches": said.branches,
                "meta": said.meta,
            },
            "digest": said.digest.hex(),
        }


def entry_json(entry: Update) -> dict[str, Any]:
    return {
        "id": entry.id.hex(),
        "author": entry.lane.author.hex(),
        "epoch": str(entry.lane.epoch),
        "track": int(entry.lane.track),
        "seq": entry.seq,
        "prev": entry.prev.hex() if entry.prev else None,
        "parents": [parent.hex() for parent in entry.parents],
        "lamport": entry.lamport,
        "update": entry.update.hex(),
    }


def put(
    root: str,
    key: str,
    value: bytes,
    *,
    by: int = 1,
    at: int = 0,
    origin: StructId | None = None,
) -> Struct:
    """One struct that sets root[key] to the lib0 bytes `value`."""
    name = StructId(client_id(lane(by)), at)
    where: dict[str, Any] = {"root": root, "key": key} if origin is None else {"origin": origin}
    return Struct(name, 1, Content.ANY, b"\x01" + value, **where)


def string(value: str) -> bytes:
    return b"\x77" + text(value)


def update_of(*structs: Struct, gone: tuple[Deletion, ...] = ()) -> bytes:
    return encode_update(DecodedUpdate(structs, gone))


def void_cases() -> list[dict[str, Any]]:
    own = client_id(lane(1))
    first = StructId(own, 0)
    deleted = Struct(first, 65_537, Content.DELETED, b"\x81\x80\x04", root="meta", key="k")
    broken: list[tuple[str, str, bytes]] = [
        ("more than 65,536 clocks", "DOC-5", update_of(deleted)),
        ("an integer is not minimal", "DOC-6", b"\x80\x00\x00"),
        ("a byte follows the update", "DOC-6", EMPTY_UPDATE + b"\x00"),
        (
            "65 containers inside each other",
            "DOC-7",
            update_of(put("meta", "k", b"\x75\x01" * (NESTING_MAX + 1) + b"\x7e")),
        ),
        ("an undefined value", "DOC-8", update_of(put("meta", "k", b"\x7f"))),
        (
            "the client id of another lane",
            "DOC-9",
            update_of(put("meta", "k", string("v"), by=2)),
        ),
        ("the first clock is 1", "DOC-10", update_of(put("meta", "k", string("v"), at=1))),
        (
            "a shared type inside a root",
            "DOC-11",
            update_of(Struct(first, 1, Content.TYPE, b"\x01", root="meta", key="k")),
        ),
        ("a root of another name", "DOC-12", update_of(put("extra", "k", string("v")))),
        (
            "an origin that no ancestor brought",
            "DOC-13",
            update_of(put("meta", "k", string("v"), origin=StructId(77, 0))),
        ),
        (
            "a deletion that no ancestor brought",
            "DOC-13",
            update_of(gone=(Deletion(StructId(77, 0), 1),)),
        ),
    ]
    cases = []
    for name, requirement, data in broken:
        case = Case(name, requirement)
        case.add("bad", data)
        # The lane goes on: a void update costs its successors nothing.
        case.add("good", update_of(put("meta", "title", string("Fugue"))), on="bad", prev="bad")
        cases.append(case.json())
    return cases


def closure_cases() -> list[dict[str, Any]]:
    blind = Case("an origin outside the closure of the parents", "DOC-13")
    blind.add("one", update_of(put("meta", "k", string("v"))))
    origin = blind.name_of("one")
    blind.add("two", update_of(put("meta", "k", string("w"), by=2, origin=origin)), by=2)

    chain = Case("an origin in a void update", "DOC-14")
    chain.add("base", update_of(put("meta", "k", string("v"))))
    chain.add("bad", update_of(put("meta", "k", string("v"), at=1)), on="base", prev="base")
    over = put("meta", "k", string("w"), by=2, origin=chain.name_of("bad"))
    chain.add("child", update_of(over), by=2, on="bad")
    over = put("meta", "k", string("x"), by=3, origin=chain.name_of("base"))
    chain.add("reaches", update_of(over), by=3, on="child")

    orphan = Case("an ancestor is missing", "DOC-19")
    orphan.add("one", update_of(put("meta", "k", string("v"))))
    orphan.add("two", update_of(put("meta", "k", string("w"))), on="one", prev="one")
    return [blind.json(), chain.json(), orphan.json(left_out="one")]


def agreement_cases() -> list[dict[str, Any]]:
    case = Case("concurrent writes, deletions, a fork and every kind of value", "DOC-15")
    values = b"\x76\x03" + text("a") + b"\x75\x02\x7e\x78" + text("b") + b"\x7d\x41"
    values += text("\u00e9") + b"\x7b" + bytes.fromhex("3eb0c6f7a0b5ed8d")
    case.add(
        "start",
        update_of(
            put("meta", "title", string("Fugue")),
            put("meta", "values", values, at=1),
            put("branches", "main", string(SEAL_HEX), at=2),
            put("branches", "not a seal", string("x"), at=3),
            put("annotations", SEAL_HEX + "/star", b"\x78", at=4),
        ),
    )
    title = case.name_of("start")
    drop = Deletion(case.name_of("start", 4), 1)
    for by, word in ((2, "Canon"), (3, "Ricercar")):
        over = put("meta", "title", string(word), by=by, origin=title)
        note = put("annotations", SEAL_HEX + f"/note{by}", string(word), by=by, at=1)
        gone = (Deletion(title, 1), drop) if by == 3 else (Deletion(title, 1),)
        case.add(f"title{by}", update_of(over, note, gone=gone), by=by, on="start")
    case.add("left", update_of(put("meta", "left", b"\x7d\x01")), on="title2 title3", prev="start")
    case.add("right", update_of(put("meta", "right", b"\x7d\x02")), on="start", prev="start")
    over = put("meta", "left", b"\x7d\x03", by=2, origin=case.name_of("left"))
    case.add("after", update_of(over), by=2, on="left right", prev="title2")
    return [case.json()]


def make() -> dict[str, Any]:
    """Build the whole file as plain JSON data."""
    lanes = [lane(1), Lane(PublicKey(bytes(range(32))), 2**64 - 1, Track.DOCUMENT)]
    samples: list[Json] = [5e-324, 1e-7, 0.000001, 0.1, 1e21, -1e300, 2**53 - 1]
    samples.append({"b": [], "a": {"\ufb33": 1, "\U0001f600": "\x1f\n"}})
    return {
        "spec": "spec/06-document",
        "clients": [
            {
                "author": item.author.hex(),
                "epoch": str(item.epoch),
                "track": int(item.track),
                "client_id": client_id(item),
            }
            for item in lanes
        ],
        "entry_clients": [
            {"id": label_id(label).hex(), "client_id": entry_client(label_id(label))}
            for label in ("one", "two")
        ],
        "canonical": [{"value": value, "bytes": canonical_json(value).hex()} for value in samples],
        "cases": [*void_cases(), *closure_cases(), *agreement_cases()],
    }


def rendered() -> str:
    """Return the exact text of the file."""
    return json.dumps(make(), indent=1, ensure_ascii=True) + "\n"


if __name__ == "__main__":
    TARGET.write_text(rendered())
    print(f"{TARGET}: {len(make()['cases'])} cases", file=sys.stderr)
