"""Cases of document-rules.json: merges with their winners, and the roots."""

import struct

from spec.vectors.make.document_cases import OWN, V, write
from spec.vectors.make.yjs import (
    SEAL_HEX,
    Json,
    Story,
    client_of,
    deleted,
    integer,
    put,
    section,
    string,
    update,
)  # fmt: skip


def _concurrent_roots() -> Json:
    s = Story()
    for by in (1, 2, 3):
        s.add(f"w{by}", write(by, f"w{by}"), by=by)
    last = s.later("w1", "w2", "w3")
    return s.vector(
        "concurrent-roots",
        "DOC-15",
        "three first writes to one key: the last"
        " in (lamport, id) wins, whatever the lanes' client ids",
        meta={"k": last},
    )


def _late_under_loser() -> Json:
    s = Story()
    for by in (1, 2):
        s.add(f"w{by}", write(by, f"w{by}"), by=by)
    loser = "w1" if s.later("w1", "w2") == "w2" else "w2"
    winner = s.later("w1", "w2")
    s.add("over", write(3, "over", s.name(loser)), by=3, on=loser)
    return s.vector(
        "late-under-loser",
        "DOC-15",
        "a later write over the losing one stays below the winner",
        meta={"k": winner},
    )


def _concurrent_chains() -> Json:
    s = Story()
    s.add("w1", write(1, "w1"))
    s.add("w2", write(2, "w2", s.name("w1")), by=2, on="w1")
    s.add("w3", write(3, "w3", s.name("w1")), by=3, on="w1")
    s.add("w4", write(4, "w4", s.name("w2")), by=4, on="w2")
    s.add("w5", write(5, "w5", s.name("w3")), by=5, on="w3")
    over = {"w2": "w4", "w3": "w5"}[s.later("w2", "w3")]
    return s.vector(
        "concurrent-chains",
        "DOC-15",
        "two chains over one write: the one whose first write is later wins as a whole",
        meta={"k": over},
    )


def _deleted_last() -> Json:
    s = Story()
    s.add("w1", write(1, "w1"))
    s.add("w2", write(2, "w2", s.name("w1")), by=2, on="w1")
    s.add("drop", update([], [deleted(s.name("w2")[0], (0, 1))]), by=3, on="w2")
    return s.vector(
        "deleted-last",
        "DOC-15",
        "the last write deleted: the key is gone, and the one before does not come back",
        meta={},
    )


def _deleted_first() -> Json:
    s = Story()
    s.add("w1", write(1, "w1"))
    s.add("w2", write(2, "w2", s.name("w1")), by=2, on="w1")
    s.add("drop", update([], [deleted(s.name("w1")[0], (0, 1))]), by=3, on="w1")
    return s.vector(
        "deleted-first",
        "DOC-15",
        "a deletion of the write below changes nothing",
        meta={"k": "w2"},
    )


def _deleted_again() -> Json:
    s = Story()
    s.add("w1", write(1, "w1"))
    s.add("drop", update([], [deleted(s.name("w1")[0], (0, 1))]), by=2, on="w1")
    s.add("again", write(3, "again", s.name("w1")), by=3, on="drop")
    return s.vector(
        "deleted-again", "DOC-15", "written again over a deleted one", meta={"k": "again"}
    )


def _same_origin_twice() -> Json:
    s = Story()
    s.add("w1", write(1, "w1"))
    s.add(
        "twice",
        update(
            [
                section(
                    client_of(2),
                    [
                        put(None, None, string("x"), origin=s.name("w1")),
                        put(None, None, string("y"), origin=s.name("w1")),
                    ],
                )
            ]
        ),
        by=2,
        on="w1",
    )
    return s.vector(
        "same-origin-twice",
        "DOC-15",
        "one update writes twice over the same origin: the lower clock comes last",
        meta={"k": "x"},
    )


def _roots_apart() -> Json:
    s = Story()
    s.add(
        "one",
        update(
            [
                section(
                    OWN,
                    [
                        put("meta", "k", string("meta")),
                        put("annotations", f"{SEAL_HEX}/k", string("note")),
                        put("branches", "k", string(SEAL_HEX)),
                    ],
                )
            ]
        ),
    )
    return s.vector(
        "roots-apart",
        "DOC-16",
        "one key in three roots",
        meta={"k": "meta"},
        annotations={SEAL_HEX: {"k": "note"}},
        branches={"k": SEAL_HEX},
    )


def _left_out() -> Json:
    s = Story()
    upper = SEAL_HEX.upper()
    s.add(
        "one",
        update(
            [
                section(
                    OWN,
                    [
                        put("branches", "upper", string(upper)),
                        put("branches", "short", string(SEAL_HEX[:-1])),
                        put("branches", "long", string(SEAL_HEX + "5")),
                        put("branches", "number", integer(5)),
                        put("branches", "line", string(SEAL_HEX + "\n")),
                        put("annotations", f"{upper}/k", V),
                        put("annotations", f"{SEAL_HEX}/", V),
                        put("annotations", SEAL_HEX, V),
                        put("annotations", f"{SEAL_HEX}k", V),
                        put("annotations", f"{SEAL_HEX}/a/b", V),
                        put("annotations", f"{SEAL_HEX}/\n", V),
                        put("annotations", f"x{SEAL_HEX}/k", V),
                        put("meta", "", V),
                    ],
                )
            ]
        ),
    )
    return s.vector(
        "left-out",
        "DOC-16",
        "only 64 lowercase digits are a seal or an entry;"
        " the key behind the first slash has any characters, one at least",
        annotations={SEAL_HEX: {"a/b": "v", "\n": "v"}},
        meta={"": "v"},
    )


def _parent_missing() -> Json:
    s = Story()
    s.add("one", write(1, "v"))
    s.add("two", write(2, "w", key="l"), by=2, on="one")
    return s.vector("parent-missing", "DOC-19", "its parent is missing", left_out="one")


def _numbers() -> Json:
    s = Story()
    forms = {
        1e20: "100000000000000000000", 1e21: "1e+21",
        123456789012345680000.0: "123456789012345680000",
        9007199254740992.0: "9007199254740992", 9007199254740991.0: "9007199254740991",
        1e-6: "0.000001", 1e-7: "1e-7", 1.5: "1.5", -0.0: "0", 1.25e-9: "1.25e-9", 1e300: "1e+300",
        -12345.678: "-12345.678", 0.1: "0.1", 5e-324: "5e-324", 1e5: "100000", -2.5e25: "-2.5e+25",
    }  # fmt: skip
    structs = [
        put("meta", f"n{i:02}", b"\x7b" + struct.pack(">d", value)) for i, value in enumerate(forms)
    ]
    structs.append(put("meta", "zero", b"\x7d\x00"))
    s.add("one", update([section(OWN, structs)]))
    found: dict[str, object] = {f"n{i:02}": value for i, value in enumerate(forms)}
    found = {n: int(v) if float(v).is_integer() and abs(v) < 2**53 else v for n, v in found.items()}  # type: ignore[arg-type, call-overload]
    pairs = [f'"n{i:02}":{form}' for i, form in enumerate(forms.values())]
    canonical = f'{{"annotations":{{}},"branches":{{}},"meta":{{{",".join(pairs)},"zero":0}}}}'
    return s.vector(
        "numbers",
        "DOC-17",
        "doubles as ECMAScript writes them: without an exponent from 1e-6 to below 1e21",
        canonical=canonical,
        meta={**found, "zero": 0},
    )


CASES = (
    _numbers,
    _concurrent_roots,
    _late_under_loser,
    _concurrent_chains,
    _deleted_last,
    _deleted_first,
    _deleted_again,
    _same_origin_twice,
    _roots_apart,
    _left_out,
    _parent_missing,
)
