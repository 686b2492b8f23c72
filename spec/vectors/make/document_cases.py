"""Cases of document-rules.json: values, names, merges and roots that count."""

import struct

from spec.vectors.make.yjs import (
    EMPTY,
    Json,
    Name,
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
)  # fmt: skip

ORIGIN = "DOCUMENT_ORIGIN_UNKNOWN"
OWN, TWO, THREE = client_of(1), client_of(2), client_of(3)
V = string("v")
TWINS = [b"\x11" * 8 + bytes([i]) * 24 for i in (1, 2)]


def over(origin: Name, value: str = "w", by: int = 2) -> bytes:
    """Write over one struct."""
    return update([section(client_of(by), [put(None, None, string(value), origin=origin)])])


def write(by: int, value: str, origin: Name | None = None, *, key: str = "k") -> bytes:
    """Set a key of meta."""
    return update([section(client_of(by), [put("meta", key, string(value), origin=origin)])])


def _values() -> Json:
    s = Story()
    deep = b"\x75\x01" * 64 + b"\x7e"
    values = (
        b"\x7e" + b"", b"\x79", b"\x78", integer(2**53 - 1), integer(-(2**53 - 1)), integer(63),
        integer(64), integer(-1),
    )  # fmt: skip
    s.add("one", meta(*values))
    more = (
        b"\x7c" + struct.pack(">f", 0.5), b"\x7b" + struct.pack(">d", -2.0), b"\x76\x00",
        b"\x75\x00", deep, b"\x76\x02" + text("b") + b"\x7d\x01" + text("a") + b"\x7d\x02",
        string("\u00e9"), string(""),
    )  # fmt: skip
    s.add("two", meta(*more), on="one", prev="one", by=1)
    nested: object = None
    for _ in range(64):
        nested = [nested]
    first = dict(zip("abcdefgh", [None, False, True, 2**53 - 1, -(2**53 - 1), 63, 64, -1],
                     strict=True))  # fmt: skip
    second = dict(zip("abcdefgh", [0.5, -2, {}, [], nested, {"a": 2, "b": 1}, "\u00e9", ""],
                      strict=True))  # fmt: skip
    # Both write the keys without an origin: the later entry wins.
    assert s.later("one", "two") == "two" and first.keys() == second.keys()
    return s.vector("values", "DOC-8", "every kind of value at its bounds; both updates set the"
                    " same keys, and the later one wins", meta=second)  # fmt: skip


def _values_first() -> Json:
    s = Story()
    values = (b"\x7e", b"\x79", b"\x78", integer(2**53 - 1), integer(-(2**53 - 1)), integer(63),
              integer(64), integer(-1))  # fmt: skip
    s.add("one", meta(*values))
    found = dict(zip("abcdefgh", [None, False, True, 2**53 - 1, -(2**53 - 1), 63, 64, -1],
                     strict=True))  # fmt: skip
    return s.vector("integers", "DOC-8", "scalars and integers at their bounds", meta=found)


def _bytes_65536() -> Json:
    s = Story()
    head = update([section(OWN, [put("meta", "a", b"\x77" + number(65_000))])])
    fill = 65_536 - len(head)
    data = update([section(OWN, [put("meta", "a", string("x" * fill))])])
    assert len(data) == 65_536
    s.add("full", data)
    return s.vector("bytes-65536", "DOC-5", "65,536 bytes", meta={"a": "x" * fill})


def _clocks_65536() -> Json:
    s = Story()
    s.add("full", update([section(OWN, [put("meta", "b", V), gone("meta", "a", 65_535)])]))
    return s.vector("clocks-65536", "DOC-5", "65,536 clocks", meta={"b": "v"})


def _deletions_touching() -> Json:
    s = Story()
    touching = [deleted(OWN, (0, 1), (1, 2))]
    s.add("one", update([section(OWN, [gone("meta", "a", 3), put("meta", "b", V)])], touching))
    return s.vector("deletions-touching", "DOC-6", "one run of deletions may begin where another"
                    " ends", meta={"b": "v"})  # fmt: skip


def _empty_update() -> Json:
    s = Story()
    s.add("none", EMPTY)
    s.add("one", meta(V), on="none", prev="none")
    return s.vector("empty-update", "DOC-1", "an update without structs is valid and brings"
                     " nothing", meta={"a": "v"})  # fmt: skip


def _origin_clock() -> Json:
    s = Story()
    s.add("one", meta(V, V))
    s.add("bad", over(s.name("one", 2)), by=2, on="one")
    s.add("good", over(s.name("one", 1), by=3), by=3, on="one")
    return s.vector(
        "origin-clock",
        "DOC-13",
        "clock 2 of an entry with two clocks",
        void={"bad": ORIGIN},
        meta={"a": "v", "b": "w"},
    )


def _deletion_clock() -> Json:
    s = Story()
    s.add("one", meta(V))
    s.add(
        "bad",
        update([section(TWO, [put("meta", "k", V)])], [deleted(s.name("one")[0], (0, 2))]),
        by=2,
        on="one",
    )
    return s.vector(
        "deletion-clock",
        "DOC-13",
        "deletes two clocks of an entry with one",
        void={"bad": ORIGIN},
        meta={"a": "v"},
    )


def _origin_lane() -> Json:
    s = Story()
    s.add("one", meta(V))
    s.add(
        "two",
        update([section(OWN, [put(None, None, string("w"), origin=(OWN, 0))])]),
        on="one",
        prev="one",
    )
    return s.vector(
        "origin-lane",
        "DOC-13",
        "the client id of the lane means the update itself, not the entry before it",
        void={"two": ORIGIN},
        meta={"a": "v"},
    )


def _closure_prev() -> Json:
    s = Story()
    s.add("one", meta(V))
    s.add("two", EMPTY, on="genesis", prev="one")
    s.add("three", over(s.name("one"), by=3), by=3, on="two")
    return s.vector(
        "closure-prev", "DOC-13", "the closure goes through prev as well", meta={"a": "w"}
    )


def _names_two() -> Json:
    s = Story()
    s.add("one", meta(V), entry_id=TWINS[0])
    s.add("two", update([section(TWO, [put("meta", "b", V)])]), by=2, entry_id=TWINS[1])
    s.add("one-side", over(s.name("one"), by=3), by=3, on="one")
    s.add(
        "both",
        update([section(client_of(4), [put(None, None, string("x"), origin=s.name("one"))])]),
        by=4,
        on="one two",
    )
    return s.vector(
        "names-two",
        "DOC-13",
        "two entries with the same 53 bits: a name with"
        " two meanings in the closure has none; with one, it has that one",
        void={"both": ORIGIN},
        meta={"a": "w", "b": "v"},
    )


def _names_two_clock() -> Json:
    s = Story()
    s.add("one", meta(V, V), entry_id=TWINS[0])
    s.add("two", update([section(TWO, [put("meta", "c", V)])]), by=2, entry_id=TWINS[1])
    s.add("both", over(s.name("one", 1), by=3), by=3, on="one two")
    return s.vector(
        "names-two-clock",
        "DOC-13",
        "nor has one whose clock only one of the two has",
        void={"both": ORIGIN},
        meta={"a": "v", "b": "v", "c": "v"},
    )


def _names_void() -> Json:
    s = Story()
    s.add("one", meta(V), entry_id=TWINS[0])
    s.add("void", update([section(5, [put("meta", "b", V)])]), by=2, entry_id=TWINS[1])
    s.add("both", over(s.name("one"), by=3), by=3, on="one void")
    return s.vector(
        "names-void",
        "DOC-14",
        "a void entry brings no structs, so the name means the other one",
        void={"void": "DOCUMENT_CLIENT_FOREIGN"},
        meta={"a": "w"},
    )


def _names_empty() -> Json:
    s = Story()
    s.add("one", meta(V), entry_id=TWINS[0])
    s.add("empty", EMPTY, by=2, entry_id=TWINS[1])
    s.add("both", over(s.name("one"), by=3), by=3, on="one empty")
    comment = "nor does an empty update, so the name means the other one"
    return s.vector("names-empty", "DOC-13", comment, meta={"a": "w"})


def _key_flag() -> Json:
    s = Story()
    s.add("one", meta(V))
    plain = put(None, None, string("w"), origin=s.name("one"))
    flagged = bytes([plain[0] | 0x20]) + plain[1:]
    s.add("two", update([section(TWO, [flagged])]), by=2, on="one")
    comment = "the flag of a key beside an origin, as Yjs sets it: no key follows"
    return s.vector("key-flag", "DOC-11", comment, meta={"a": "w"})


def _names_low_bits() -> Json:
    s = Story()
    low = [b"\x11" * 6 + b"\x00\x00" + bytes([i]) * 24 for i in (1, 2)]
    low[1] = bytes([low[1][0] ^ 1]) + low[1][1:]
    s.add("one", meta(V), entry_id=low[0])
    s.add("two", update([section(TWO, [put("meta", "b", V)])]), by=2, entry_id=low[1])
    s.add("both", over(s.name("one"), by=3), by=3, on="one two")
    return s.vector(
        "names-low-bits",
        "DOC-3",
        "ids that differ in the 11 bits left out have one name",
        void={"both": ORIGIN},
        meta={"a": "v", "b": "v"},
    )


def _origin_earlier() -> Json:
    s = Story()
    s.add(
        "own",
        update(
            [
                section(
                    OWN,
                    [
                        put("meta", "a", V),
                        put(None, None, string("w"), origin=(OWN, 0)),
                        gone("meta", "b"),
                    ],
                )
            ],
            [deleted(OWN, (0, 1), (2, 1))],
        ),
    )
    return s.vector(
        "origin-earlier", "DOC-13", "an origin and deletions inside the update", meta={"a": "w"}
    )


def _run_split() -> Json:
    s = Story()
    s.add("one", update([section(OWN, [gone("meta", "a", 3)])]))
    s.add("two", over(s.name("one", 1)), by=2, on="one")
    s.add(
        "three",
        update([section(THREE, [put(None, None, string("x"), origin=s.name("one", 2))])]),
        by=3,
        on="one",
    )
    return (s.vector("run-split", "DOC-15", "a run of three: `two` and the run's last both"
                          " come right behind its second, and the later entry is last; what"
                          " follows the run's last stays with it", meta={"a": "w"}))  # fmt: skip


CASES = (
    _values_first,
    _values,
    _bytes_65536,
    _clocks_65536,
    _deletions_touching,
    _empty_update,
    _origin_clock,
    _deletion_clock,
    _origin_lane,
    _closure_prev,
    _names_two,
    _names_two_clock,
    _names_void,
    _names_empty,
    _key_flag,
    _names_low_bits,
    _origin_earlier,
    _run_split,
)
