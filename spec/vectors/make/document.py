"""document.json: one case per reason for a void update, valid tracks, client ids, canonical JSON.

The updates and the results that must follow from them are written by hand.
"""

import json

from spec.vectors.make.build import pae, sha256
from spec.vectors.make.yjs import (
    EMPTY,
    SEAL_HEX,
    Json,
    Story,
    client,
    client_of,
    deleted,
    gone,
    put,
    section,
    string,
    text,
    update,
)

OWN = client_of(1)
V = string("v")


def _of(owner: int, *structs: bytes, deletions: list[bytes] | None = None) -> bytes:
    return update([section(owner, list(structs))], deletions)


def _case(story: Story, name: str, requirement: str, **found: object) -> Json:
    case = story.vector(name, requirement, "", **found)  # type: ignore[arg-type]
    del case["comment"]
    return case


def _void() -> list[Json]:
    lists = b"\x75\x01" * 65 + b"\x7e"
    rows: list[tuple[str, str, str, bytes]] = [
        ("more than 65,536 clocks", "DOC-5", "TOO_LARGE", _of(OWN, gone("meta", "k", 65_537))),
        ("an integer is not minimal", "DOC-6", "MALFORMED", b"\x80\x00\x00"),
        ("a byte follows the update", "DOC-6", "MALFORMED", EMPTY + b"\x00"),
        ("65 containers inside each other", "DOC-7", "NESTING_TOO_DEEP",
         _of(OWN, put("meta", "k", lists))),
        ("an undefined value", "DOC-8", "VALUE_REFUSED", _of(OWN, put("meta", "k", b"\x7f"))),
        ("the client id of another lane", "DOC-9", "CLIENT_FOREIGN",
         _of(client_of(2), put("meta", "k", V))),
        ("the first clock is 1", "DOC-10", "CLOCK_GAP",
         update([section(OWN, [put("meta", "k", V)], 1)])),
        ("a shared type inside a root", "DOC-11", "CONTENT_REFUSED",
         _of(OWN, put("meta", "k", b"\x01", content=7, count=None))),
        ("a root of another name", "DOC-12", "ROOT_UNKNOWN", _of(OWN, put("extra", "k", V))),
        ("an origin that no ancestor brought", "DOC-13", "ORIGIN_UNKNOWN",
         _of(OWN, put(None, None, V, origin=(77, 0)))),
        ("a deletion that no ancestor brought", "DOC-13", "ORIGIN_UNKNOWN",
         update([], [deleted(77, (0, 1))])),
    ]  # fmt: skip
    cases = []
    for name, requirement, reason, data in rows:
        s = Story()
        s.add("bad", data)
        # The lane goes on: a void update costs its successors nothing.
        s.add("good", _of(OWN, put("meta", "title", string("Fugue"))), on="bad", prev="bad")
        void = {"bad": f"DOCUMENT_{reason}"}
        cases.append(_case(s, name, requirement, void=void, meta={"title": "Fugue"}))
    return cases


def _blind() -> Json:
    s = Story()
    s.add("one", _of(OWN, put("meta", "k", V)))
    s.add("two", _of(client_of(2), put(None, None, string("w"), origin=s.name("one"))), by=2)
    name = "an origin outside the closure of the parents"
    return _case(s, name, "DOC-13", void={"two": "DOCUMENT_ORIGIN_UNKNOWN"}, meta={"k": "v"})


def _chain() -> Json:
    s = Story()
    s.add("base", _of(OWN, put("meta", "k", V)))
    s.add("bad", update([section(OWN, [put("meta", "k", V)], 1)]), on="base", prev="base")
    over = put(None, None, string("w"), origin=s.name("bad"))
    s.add("child", _of(client_of(2), over), by=2, on="bad")
    over = put(None, None, string("x"), origin=s.name("base"))
    s.add("reaches", _of(client_of(3), over), by=3, on="child")
    void = {"bad": "DOCUMENT_CLOCK_GAP", "child": "DOCUMENT_ORIGIN_UNKNOWN"}
    return _case(s, "an origin in a void update", "DOC-14", void=void, meta={"k": "x"})


def _orphan() -> Json:
    s = Story()
    s.add("one", _of(OWN, put("meta", "k", V)))
    s.add("two", _of(OWN, put("meta", "k", string("w"))), on="one", prev="one")
    return _case(s, "an ancestor is missing", "DOC-19", left_out="one")


def _agreement() -> Json:
    values = b"\x76\x03" + text("a") + b"\x75\x02\x7e\x78" + text("b") + b"\x7d\x41"
    values += text("\u00e9") + b"\x7b" + bytes.fromhex("3eb0c6f7a0b5ed8d")
    s = Story()
    s.add("start", _of(
        OWN,
        put("meta", "title", string("Fugue")),
        put("meta", "values", values),
        put("branches", "main", string(SEAL_HEX)),
        put("branches", "not a seal", string("x")),
        put("annotations", SEAL_HEX + "/star", b"\x78"),
    ))  # fmt: skip
    title = s.name("start")
    for by, word, runs in ((2, "Canon", [(0, 1)]), (3, "Ricercar", [(0, 1), (4, 1)])):
        over = put(None, None, string(word), origin=title)
        note = put("annotations", f"{SEAL_HEX}/note{by}", string(word))
        data = _of(client_of(by), over, note, deletions=[deleted(title[0], *runs)])
        s.add(f"title{by}", data, by=by, on="start")
    s.add("left", _of(OWN, put("meta", "left", b"\x7d\x01")), on="title2 title3", prev="start")
    s.add("right", _of(OWN, put("meta", "right", b"\x7d\x02")), on="start", prev="start")
    over = put(None, None, b"\x7d\x03", origin=s.name("left"))
    s.add("after", _of(client_of(2), over), by=2, on="left right", prev="title2")
    later = s.later("title2", "title3")
    found: dict[str, object] = {
        "annotations": {SEAL_HEX: {"note2": "Canon", "note3": "Ricercar"}},
        "branches": {"main": SEAL_HEX},
        "meta": {
            "left": 3,
            "right": 2,
            "title": {"title2": "Canon", "title3": "Ricercar"}[later],
            "values": {"a": [None, True], "b": -1, "\u00e9": 1e-06},
        },
    }
    plain = json.dumps(found, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    name = "concurrent writes, deletions, a fork and every kind of value"
    return _case(s, name, "DOC-15", canonical=plain.replace("1e-06", "0.000001"), **found)


CANONICAL = (
    (5e-324, "5e-324"),
    (1e-7, "1e-7"),
    (0.000001, "0.000001"),
    (0.1, "0.1"),
    (1e21, "1e+21"),
    (-1e300, "-1e+300"),
    (2**53 - 1, "9007199254740991"),
    (
        {"b": [], "a": {"\ufb33": 1, "\U0001f600": "\x1f\n"}},
        '{"a":{"\U0001f600":"\\u001f\\n","\ufb33":1},"b":[]}',
    ),
)
"""Values, and their RFC 8785 forms: keys in the order of UTF-16."""


def build() -> Json:
    """Return the file."""
    lanes = [(bytes([1]) * 32, 7), (bytes(range(32)), 2**64 - 1)]
    named = [sha256(label.encode()) for label in ("one", "two")]
    return {
        "spec": "spec/06-document",
        "clients": [
            {
                "author": author.hex(),
                "epoch": str(epoch),
                "track": 2,
                "client_id": _lane(author, epoch),
            }
            for author, epoch in lanes
        ],
        "entry_clients": [{"id": i.hex(), "client_id": client(i)} for i in named],
        "canonical": [{"value": value, "bytes": form.encode().hex()} for value, form in CANONICAL],
        "cases": [*_void(), _blind(), _chain(), _orphan(), _agreement()],
    }


def _lane(author: bytes, epoch: int) -> int:
    data = author + epoch.to_bytes(8, "little") + b"\x02"
    return client(sha256(pae("antiphon/v1/document-client", data)))
