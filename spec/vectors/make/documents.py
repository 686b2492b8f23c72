"""document-rules.json: updates at each rule of chapter 06, and merges with their winners."""

import struct

from spec.vectors.make import document_cases, document_merges
from spec.vectors.make.yjs import (
    Json,
    Story,
    client_of,
    deleted,
    gone,
    integer,
    meta,
    number,
    put,
    section,
    string,
    text,
    update,
)

OWN = client_of(1)
V = string("v")
MALFORMED, VALUE = "DOCUMENT_MALFORMED", "DOCUMENT_VALUE_REFUSED"
CONTENT, ORIGIN = "DOCUMENT_CONTENT_REFUSED", "DOCUMENT_ORIGIN_UNKNOWN"


def _malformed() -> list[tuple[str, str, bytes]]:
    one = put("meta", "a", V)
    head = number(1) + number(1) + number(OWN) + number(0)
    a = b"\x28\x01" + text("meta") + text("a")
    return [
        ("no bytes", "empty", b""),
        ("only the structs", "no-deletions", b"\x00"),
        ("the last byte is missing", "cut-off", meta(V)[:-1]),
        ("ends inside a string", "cut-off-string", meta(V)[:-3]),
        ("a byte behind the update", "byte-behind", meta(V) + b"\x00"),
        ("a number that is not minimal, in the deletions", "minimal-deletions", b"\x00\x80\x00"),
        ("a clock of two bytes where one will do", "minimal-clock",
         number(1) + number(1) + number(OWN) + b"\x80\x00" + one + b"\x00"),
        ("a length that is not minimal", "minimal-text",
         head + b"\x28\x01" + b"\x84\x00meta" + text("a") + b"\x01" + V + b"\x00"),
        ("a client of 2^53", "client-large",
         number(1) + number(1) + number(2**53) + number(0) + one + b"\x00"),
        ("a number of nine bytes", "number-long", b"\x81" * 8 + b"\x01" + b"\x00"),
        ("two sections of one client", "sections-two",
         update([section(OWN, [one]), section(OWN, [put("meta", "b", V)], 1)])),
        ("a section without structs", "section-empty", update([section(OWN, [])])),
        ("two lists of deletions of one client", "deletions-two",
         update([section(OWN, [one])], [deleted(OWN, (0, 1)), deleted(OWN, (0, 1))])),
        ("an empty list of deletions", "deletions-empty",
         update([section(OWN, [one])], [deleted(OWN)])),
        ("a deletion of length 0", "deletion-zero",
         update([section(OWN, [one])], [deleted(OWN, (0, 0))])),
        ("deletions that overlap", "deletions-overlap", update(
            [section(OWN, [gone("meta", "a", 3)])], [deleted(OWN, (0, 2), (1, 2))])),
        ("deletions that descend", "deletions-descend", update(
            [section(OWN, [gone("meta", "a", 3)])], [deleted(OWN, (2, 1), (0, 1))])),
        ("content 11 does not exist", "content-eleven",
         update([section(OWN, [put("meta", "a", V, content=11)])])),
        ("a gap with a key", "gap-key", head + b"\x20" + number(1) + b"\x00"),
        ("a skip with an origin", "skip-origin", head + b"\x8a" + number(1) + b"\x00"),
        ("a parent of form 2", "parent-two", head + b"\x28\x02" + text("meta") + b"\x00"),
        ("a root that is not UTF-8", "root-utf-8",
         head + b"\x28\x01" + text(b"\xc3\x28") + text("a") + b"\x01" + V + b"\x00"),
        ("a value that is not UTF-8", "value-utf-8",
         head + a + b"\x01\x77" + text(b"\xff") + b"\x00"),
        ("no values", "values-none", head + a + b"\x00\x00"),
        ("a run of 0 deleted structs", "run-zero", head + b"\x21\x01" + text("meta") + text("a")
         + b"\x00\x00"),
        ("a value of kind 115", "kind-low", head + a + b"\x01\x73\x00"),
        ("a value of kind 128", "kind-high", head + a + b"\x01\x80\x00"),
        ("a map with a key twice", "key-twice",
         meta(b"\x76\x02" + text("k") + b"\x7e" + text("k") + b"\x7e")),
        ("minus zero as integer", "minus-zero", meta(b"\x7d\x40")),
        ("an integer that is not minimal", "integer-minimal", meta(b"\x7d\x81\x00")),
        ("an integer of ten bytes", "integer-long", meta(b"\x7d" + b"\x80" * 9 + b"\x01")),
        ("an empty string as content", "string-empty",
         head + b"\x24\x01" + text("meta") + text("a") + text("") + b"\x00"),
        ("shared type 7 does not exist", "type-seven",
         head + b"\x27\x01" + text("meta") + text("a") + b"\x07\x00"),
        ("a list that is cut off", "list-cut", meta(b"\x75\x03\x7e\x7e")[:-1]),
    ]  # fmt: skip


def _refused() -> list[tuple[str, str, str, str, bytes]]:
    def one(value: bytes = V, **fields: object) -> bytes:
        return update([section(OWN, [put("meta", "a", value, **fields)])])  # type: ignore[arg-type]

    skip = update([section(OWN, [put("meta", "a", V), b"\x0a" + number(1)])])
    deep = b"\x75\x01" * 65 + b"\x7e"
    maps = (b"\x76\x01" + text("k")) * 65 + b"\x7e"
    gap, large = "DOCUMENT_CLOCK_GAP", "DOCUMENT_TOO_LARGE"
    foreign = "DOCUMENT_CLIENT_FOREIGN"
    nested = "DOCUMENT_NESTING_TOO_DEEP"
    return [
        ("bytes-65537", "DOC-5", large, "65,537 bytes, whatever they are", bytes(65_537)),
        ("clocks-several", "DOC-5", large, "65,537 clocks in two runs",
         update([section(OWN, [gone("meta", "a", 65_536), put("meta", "b", V)])])),
        ("clocks-foreign", "DOC-9", foreign, "65,537 clocks, of which the last is foreign",
         update([section(OWN, [gone("meta", "a", 65_536)]), section(5, [put("meta", "b", V)])])),
        ("lists-65", "DOC-7", nested, "65 lists inside each other", one(deep)),
        ("maps-65", "DOC-7", nested, "65 maps inside each other", one(maps)),
        ("bigint", "DOC-8", VALUE, "a bigint", one(b"\x7a" + bytes(8))),
        ("bytes", "DOC-8", VALUE, "bytes", one(b"\x74\x01x")),
        ("undefined-inside", "DOC-8", VALUE, "undefined in a list", one(b"\x75\x01\x7f")),
        ("nan-32", "DOC-8", VALUE, "NaN in 4 bytes", one(b"\x7c" + bytes.fromhex("7fc00000"))),
        ("infinity-64", "DOC-8", VALUE, "minus infinity in 8 bytes",
         one(b"\x7b" + struct.pack(">d", float("-inf")))),
        ("integer-large", "DOC-6", MALFORMED, "the integer 2^53", one(integer(2**53))),
        ("integer-low", "DOC-6", MALFORMED, "the integer -2^53", one(integer(-(2**53)))),
        ("integer-nine", "DOC-6", MALFORMED, "an integer of nine bytes before an undefined value",
         one(integer(2**55 + 1) + b"\x7f", count=2)),
        ("value-first", "DOC-8", VALUE, "the bytes are read once: an undefined value comes before"
         " the byte behind the update", one(b"\x7f") + b"\x00"),
        ("malformed-first", "DOC-6", MALFORMED, "and here a map's second key before the bigint",
         one(b"\x76\x03" + (text("k") + b"\x7e") * 2 + text("l") + b"\x7a" + bytes(8))),
        ("foreign-second", "DOC-9", foreign, "a second section, of another client",
         update([section(OWN, [put("meta", "a", V)]), section(5, [put("meta", "b", V)])])),
        ("client-greatest", "DOC-9", foreign, "client 2^53 - 1 is a number like others",
         update([section(2**53 - 1, [put("meta", "a", V)])])),
        ("clock-greatest", "DOC-10", gap, "clock 2^53 - 2, with one struct",
         update([section(OWN, [put("meta", "a", V)], 2**53 - 2)])),
        ("clock-beyond", "DOC-6", MALFORMED, "clock 2^53 - 1, behind which no clock is left",
         update([section(OWN, [put("meta", "a", V)], 2**53 - 1)])),
        ("clock-run", "DOC-6", MALFORMED, "two clocks from 2^53 - 2",
         update([section(OWN, [gone("meta", "a", 2)], 2**53 - 2)])),
        ("gap-foreign", "DOC-10", gap, "from clock 1, then another client: structs are looked at"
         " one by one", update([section(OWN, [put("meta", "a", V)], 1),
                                section(5, [put("meta", "a", V)])])),
        ("foreign-gap", "DOC-9", foreign, "another client, from clock 1: the client is looked at"
         " first", update([section(5, [put("meta", "a", V)], 1)])),
        ("gap-content", "DOC-10", gap, "from clock 1, with a content that is refused: clocks are"
         " looked at first", update([section(OWN, [put("meta", "a", V, count=2) + V], 1)])),
        ("skip", "DOC-10", gap, "a skip behind a value", skip),
    ]  # fmt: skip


def _refused_structs() -> list[tuple[str, str, str, str, bytes]]:
    def one(value: bytes = V, **fields: object) -> bytes:
        return update([section(OWN, [put("meta", "a", value, **fields)])])  # type: ignore[arg-type]

    bare = update([section(OWN, [b"\x00" + number(1)])])
    root = "DOCUMENT_ROOT_UNKNOWN"
    return [
        ("content-gap", "DOC-11", CONTENT, "a gap (content 0)", bare),
        ("content-json", "DOC-11", CONTENT, "content 2", one(text("1"), content=2)),
        ("content-bytes", "DOC-11", CONTENT, "content 3", one(text("x"), content=3, count=None)),
        ("content-string", "DOC-11", CONTENT, "content 4", one(text("x"), content=4, count=None)),
        ("content-embed", "DOC-11", CONTENT, "content 5", one(text("1"), content=5, count=None)),
        ("content-format", "DOC-11", CONTENT, "content 6",
         one(text("k") + text("1"), content=6, count=None)),
        ("content-type", "DOC-11", CONTENT, "content 7, a named element",
         one(b"\x03" + text("p"), content=7, count=None)),
        ("content-type-greatest", "DOC-11", CONTENT, "content 7, shared type 6",
         one(b"\x06", content=7, count=None)),
        ("content-document", "DOC-11", CONTENT, "content 9",
         one(text("g") + b"\x76\x00", content=9, count=None)),
        ("values-two", "DOC-11", CONTENT, "two values in one struct", one(V + V, count=2)),
        ("origin-right", "DOC-11", CONTENT, "a right origin",
         update([section(OWN, [put("meta", "a", V), put(None, None, V, right=(OWN, 0))])])),
        ("origins-both", "DOC-11", CONTENT, "an origin on each side",
         update([section(OWN, [put("meta", "a", V),
                               put(None, None, V, origin=(OWN, 0), right=(OWN, 0))])])),
        ("parent-struct", "DOC-11", CONTENT, "a struct as parent",
         one(parent=(OWN, 0))),
        ("key-none", "DOC-11", CONTENT, "a root without a key",
         update([section(OWN, [put("meta", None, V)])])),
        ("key-none-root", "DOC-11", CONTENT, "a root of another name, without a key",
         update([section(OWN, [put("extra", None, V)])])),
        ("root-case", "DOC-12", root, "roots are told by case",
         update([section(OWN, [put("Meta", "a", V)])])),
        ("root-second", "DOC-12", root, "the second struct has another root",
         update([section(OWN, [put("meta", "a", V), put("", "a", V)])])),
        ("root-before-content", "DOC-12", root, "structs are looked at one by one: the root of the"
         " first comes before the content of the second",
         update([section(OWN, [put("x", "a", V), put("meta", "b", V + V, count=2)])])),
        ("root-deleted", "DOC-12", root, "a deleted struct in another root",
         update([section(OWN, [gone("x", "a")])])),
        ("origin-own", "DOC-13", ORIGIN, "a struct that is its own origin",
         update([section(OWN, [put(None, None, V, origin=(OWN, 0))])])),
        ("origin-later", "DOC-13", ORIGIN, "an origin that comes later in the update",
         update([section(OWN, [put(None, None, V, origin=(OWN, 1)), put("meta", "a", V)])])),
        ("origin-clock-greatest", "DOC-13", ORIGIN, "an origin of clock 2^53 - 2",
         update([section(OWN, [put(None, None, V, origin=(5, 2**53 - 2))])])),
        ("origin-clock-beyond", "DOC-6", MALFORMED, "an origin of clock 2^53 - 1",
         update([section(OWN, [put(None, None, V, origin=(5, 2**53 - 1))])])),
        ("deletion-clock-greatest", "DOC-13", ORIGIN, "deletes clock 2^53 - 2",
         update([], [deleted(5, (2**53 - 2, 1))])),
        ("deletion-clock-beyond", "DOC-6", MALFORMED, "deletes clock 2^53 - 1",
         update([], [deleted(5, (2**53 - 2, 2))])),
        ("deletion-beyond", "DOC-13", ORIGIN, "deletes a clock more than the update has",
         update([section(OWN, [put("meta", "a", V)])], [deleted(OWN, (0, 2))])),
    ]  # fmt: skip


def _read_on() -> list[tuple[str, str, str, str, bytes]]:
    """Return updates that a reader refuses for another reason, or takes, if it reads on."""

    def one(value: bytes = V, **fields: object) -> bytes:
        return update([section(OWN, [put("meta", "a", value, **fields)])])  # type: ignore[arg-type]

    lists = b"\x75\x01" * 64
    nested = "DOCUMENT_NESTING_TOO_DEEP"
    astral = put("meta", "b", text("\N{FOX FACE}"), content=4, count=None)
    return [
        ("bytes-cut", "DOC-8", VALUE, "bytes that are cut off: their kind comes first",
         one(b"\x74\x7f")),
        ("bigint-cut", "DOC-8", VALUE, "a bigint that is cut off", one(b"\x7a\x01")),
        ("lists-65-empty", "DOC-7", nested, "the 65th list is empty", one(lists + b"\x75\x00")),
        ("lists-65-minimal", "DOC-7", nested, "the length of the 65th list is not minimal",
         one(lists + b"\x75\x80\x00")),
        ("lists-65-bigint", "DOC-7", nested, "the 65th list holds a bigint",
         one(lists + b"\x75\x01\x7a" + bytes(8))),
        ("form-two", "DOC-6", MALFORMED, "a whole struct with a parent of form 2", update(
            [section(OWN, [b"\x28\x02" + text("meta") + text("a") + b"\x01" + V])])),
        ("right-clock-beyond", "DOC-6", MALFORMED, "a right origin of clock 2^53 - 1",
         update([section(OWN, [put(None, None, V, right=(5, 2**53 - 1))])])),
        ("parent-clock-beyond", "DOC-6", MALFORMED, "a parent of clock 2^53 - 1",
         one(parent=(5, 2**53 - 1))),
        ("content-hook", "DOC-11", CONTENT, "content 7, shared type 5, which has a name",
         one(b"\x05" + text("p"), content=7, count=None)),
        ("clocks-string", "DOC-5", "DOCUMENT_TOO_LARGE", "a character beyond U+FFFF has two clocks",
         update([section(OWN, [gone("meta", "a", 65_535), astral])])),
    ]  # fmt: skip


def _void(name: str, requirement: str, reason: str, comment: str, data: bytes) -> Json:
    s = Story()
    s.add("bad", data)
    s.add(
        "good", update([section(OWN, [put("meta", "title", string("on"))])]), on="bad", prev="bad"
    )
    return s.vector(name, requirement, comment, void={"bad": reason}, meta={"title": "on"})


def build() -> Json:
    """Return the file."""
    void = [_void(name, "DOC-6", MALFORMED, said, data) for said, name, data in _malformed()]
    void += [_void(*row) for row in (*_refused(), *_refused_structs(), *_read_on())]
    return {
        "file": "document-rules",
        "spec": "spec/06-document",
        "comment": "Project the entries of a track, given in any order. Entry ids are no hashes"
        " here: a document only compares and sorts them.",
        "vectors": [*void, *(case() for case in (*document_cases.CASES, *document_merges.CASES))],
    }
