"""Cases of admission.json at the bounds of headers and control bodies, on both sides of each."""

from dataclasses import replace
from typing import Protocol

from spec.vectors.make.admission_log import ADA, BOB, EVE, HAL, SALT, SEALED, Cases, seal_body
from spec.vectors.make.build import (
    CONVERSATION,
    DOCUMENT,
    DOCUMENTS,
    GENESIS,
    JOIN,
    MEMBER,
    MEMBERSHIP,
    MESSAGE,
    REQUEST,
    SEAL,
    Fixed,
    Header,
    Key,
    genesis,
    message,
    one_field,
    request,
    said,
    sha256,
    signed,
)

ID = sha256(b"an id")


class Add(Protocol):
    """Add one control body: admitted if it `fits`, else BODY_MALFORMED."""

    def __call__(
        self, name: str, comment: str, kind: int, content: bytes, *, fits: bool = False
    ) -> None: ...


def headers(cases: Cases) -> None:
    """Add headers at the bounds of chapter 02 §1."""
    log = cases.log
    plain = log.header("edge", ADA, MESSAGE, said("x"), parents=["answer"], basis="seal")
    fields = plain.fields()
    alike = [b"\x07" * 31 + bytes([i]) for i in (2, 1)]
    for name, comment, changes in (
        ("conversation-short", "a conversation of 31 bytes", {1: bytes([1] * 31)}),
        ("prev-long", "prev of 33 bytes", {6: bytes([1] * 33)}),
        ("basis-short", "a basis of 31 bytes", {8: bytes([1] * 31)}),
        ("digest-long", "a body digest of 33 bytes", {12: bytes([1] * 33)}),
        ("digest-none", "no body digest", {12: b""}),
        ("author-none", "no author", {2: b""}),
        ("author-long", "an author of 33 bytes", {2: ADA.public + b"\x01"}),
        ("parent-empty", "an empty parent", {7: [b""]}),
        ("parents-last-byte", "parents that descend in their last byte alone", {7: alike}),
        (
            "parent-among",
            "the second of two parents has 31 bytes",
            {7: [b"\x01" * 32, b"\x02" * 31]},
        ),
    ):
        data = message({**fields, **changes})
        cases.refused(name, "FIELD_INVALID", comment, signed(plain, ADA, data))
    both = message({**fields, 3: Fixed(0), 13: 524_289})
    cases.refused(
        "body-stated-epoch",
        "FIELD_INVALID",
        "epoch 0 and a stated body of 524,289 bytes: ranges come first",
        signed(plain, ADA, both),
    )
    for name, comment, kind, track in (
        ("track-member", "a MEMBER entry on the conversation track", MEMBER, CONVERSATION),
        ("track-document", "a DOCUMENT entry on the conversation track", DOCUMENT, CONVERSATION),
        ("track-seal", "a SEAL on the membership track", SEAL, MEMBERSHIP),
        ("track-request", "a REQUEST on the document track", REQUEST, DOCUMENTS),
        ("track-cancel", "a CANCEL on the membership track", 8, MEMBERSHIP),
        ("track-generation", "a GENERATION on the document track", 7, DOCUMENTS),
        ("track-tools", "TOOLS on the document track", 4, DOCUMENTS),
        ("track-checkpoint", "a CHECKPOINT on the membership track", 9, MEMBERSHIP),
        ("track-join-none", "a JOIN without a track", JOIN, 0),
        ("track-unknown-four", "an unknown kind on track 4", 99, 4),
    ):
        data = message({**fields, 10: kind, 4: track})
        cases.refused(name, "TRACK_INVALID", comment, signed(plain, ADA, data))


def full_headers(cases: Cases) -> None:
    """Add headers that are as large as they may be."""
    log = cases.log
    plain = log.header("edge-full", ADA, MESSAGE, said("x"), parents=["answer"], basis="seal")
    fields = plain.fields()
    alone = message({**fields, 8: b"", 6: b"", 5: 0, 3: Fixed(9)})
    unsized = replace(plain, basis=b"", prev=b"", seq=0, epoch=9)
    rest = 8_192 - len(alone) - 5
    cases.add(
        "header-full",
        "8,192 bytes",
        SEALED,
        signed(replace(unsized, lamport=plain.lamport), ADA, alone + _filler(rest, alone)),
        "admitted",
    )
    large = message({**unsized.fields(), 13: 524_288})
    cases.add(
        "body-stated",
        "states 524,288 bytes, and the body is absent",
        SEALED,
        replace(signed(unsized, ADA, large), body=None),
        "admitted",
    )
    short = replace(unsized, body=SALT)
    cases.add("body-salt", "a body of 16 bytes: its salt", SEALED, signed(short, ADA), "admitted")
    parents = _many(cases)
    many = replace(unsized, parents=tuple(parents), lamport=1 + cases.odd["many-0"].header.lamport)
    cases.add(
        "parents-full",
        "64 parents",
        [*SEALED, *(f"many-{i}" for i in range(64))],
        signed(many, ADA),
        "admitted",
    )
    for track in (DOCUMENTS, MEMBERSHIP):
        odd = replace(unsized, kind=99, track=track, parents=(log.conversation,), lamport=1)
        cases.add(f"unknown-track-{track}", "an unknown kind may be on any track", SEALED,
                  signed(odd, ADA), "admitted")  # fmt: skip


def _filler(size: int, data: bytes) -> bytes:
    filler = one_field(99, bytes(size))
    return filler if len(data) + len(filler) == 8_192 else one_field(
        99, bytes(size + 8_192 - len(data) - len(filler))
    )  # fmt: skip


def _many(cases: Cases) -> list[bytes]:
    """Write 64 messages in lanes of their own; return their ids, ascending."""
    plain = cases.log.header("many", ADA, MESSAGE, said("x"), parents=["genesis"])
    for i in range(64):
        header = replace(plain, epoch=100 + i, seq=0, prev=b"", lamport=1)
        cases.odd[f"many-{i}"] = signed(header, ADA)
    return sorted(cases.odd[f"many-{i}"].id for i in range(64))


def geneses(cases: Cases) -> None:
    """Add geneses with one field that they may not have."""
    body = SALT + genesis([ADA])
    for name, comment, changes in (
        ("genesis-conversation", "a genesis of a conversation", {"conversation": ID}),
        ("genesis-prev", "a genesis with prev", {"prev": ID}),
        ("genesis-basis", "a genesis with a basis", {"basis": ID}),
        ("genesis-lamport", "a genesis of lamport 1", {"lamport": 1}),
    ):
        header = replace(Header(ADA.public, GENESIS, body), **changes)  # type: ignore[arg-type]
        cases.add(name, comment, [], signed(header, ADA), "refused", "GENESIS_INVALID")
    full = genesis([ADA, *(Key(f"owner {i}") for i in range(15))])
    for name, comment, content in (
        ("genesis-owners-full", "16 owners", full),
        ("genesis-sampling", "proposed sampling, even empty", genesis([ADA]) + one_field(2, b"")),
        ("genesis-unknown", "a field of a newer version", genesis([ADA]) + one_field(9, b"new")),
    ):
        header = Header(ADA.public, GENESIS, SALT + content)
        cases.add(name, comment, [], signed(header, ADA), "admitted")
    for name, comment, content in (
        (
            "genesis-owner-short",
            "an owner of 31 bytes",
            message({1: [ADA.public, BOB.public[:31]]}),
        ),
        ("genesis-owner-empty", "an empty owner", message({1: [ADA.public, b""]})),
        (
            "genesis-wire",
            "proposed sampling that is not strict",
            genesis([ADA]) + one_field(2, one_field(2, 0)),
        ),
    ):
        header = Header(ADA.public, GENESIS, SALT + content)
        cases.add(name, comment, [], signed(header, ADA), "refused", "BODY_MALFORMED")  # fmt: skip
    header = Header(ADA.public, GENESIS, SALT[:15] + b"\x0a")
    cases.add("genesis-bare", "a body of its salt alone has no owners", [], signed(header, ADA),
              "refused", "BODY_MALFORMED")  # fmt: skip


def genesis_parents(cases: Cases) -> None:
    """Add geneses whose parents break the rules for those of every entry: these come first."""
    header = Header(ADA.public, GENESIS, SALT + genesis([ADA]))
    for name, comment, parents in (
        ("short", "a genesis with a parent of 31 bytes", [ID[:31]]),
        ("order", "a genesis with parents that do not ascend", [b"\x02" * 32, b"\x01" * 32]),
        ("many", "a genesis with 65 parents", [bytes([i]) * 32 for i in range(1, 66)]),
    ):
        entry = signed(header, ADA, message({**header.fields(), 7: parents}))
        cases.add(f"genesis-parents-{name}", comment, [], entry, "refused", "FIELD_INVALID")


def _heads(count: int) -> bytes:
    return b"".join(one_field(7, bytes([i]) * 32) for i in range(1, count + 1))


def _fields(count: int) -> bytes:
    """Return a sampling with unknown fields, `count` with itself."""
    return one_field(3, one_field(15, 1) * (count - 1))


def _adder(cases: Cases) -> Add:
    log = cases.log

    def add(name: str, comment: str, kind: int, content: bytes, *, fits: bool = False) -> None:
        by = HAL if kind == SEAL else ADA
        parents = ["grant-hal"] if kind == MEMBER else ["ask"]
        listed = ["grant-hal", "reply"] if kind == SEAL else []
        header = log.header(name, by, kind, content, parents=parents, listed=listed)
        if fits:
            cases.add(name, comment, SEALED, signed(header, by), "admitted")
        else:
            cases.refused(name, "BODY_MALFORMED", comment, signed(header, by))

    return add


def bodies(cases: Cases) -> None:
    """Add control bodies at their bounds."""
    host = message({1: HAL.public})
    call = one_field(1, ID)

    add = _adder(cases)
    stops = request(HAL) + b"".join(one_field(5, b"!") for _ in range(16))
    for name, comment, content in (
        ("stop-full", "16 stop strings", stops),
        ("tool-name-full", "a tool's name of 256 bytes", request(HAL) + one_field(16, b"t" * 256)),
        ("format-short", "a grammar of one byte", request(HAL) + one_field(14, b"x")),
        ("heads-full", "64 membership heads, which nobody has to hold", request(HAL) + _heads(64)),
        ("request-bare", "a host is enough: sampling may be absent", host),
        ("request-unknown", "a field of a newer version", host + one_field(99, b"new")),
        ("choice-unknown", "an unknown choice of tools", host + one_field(15, 9)),
        ("fields-full", "10,240 fields, most unknown ones of its sampling", host + _fields(10_239)),
        (
            "profile-executor",
            "a profile and an executor",
            message({1: HAL.public, 2: ID, 6: BOB.public}),
        ),
        ("call-key", "a call key", host + one_field(17, call + one_field(2, ID))),
    ):
        add(name, comment, REQUEST, content, fits=True)
    for name, comment, content in (
        ("stop-empty", "an empty stop string", host + one_field(5, b"")),
        ("fields-many", "10,241 fields", host + _fields(10_240)),
        (
            "tool-name-utf-8",
            "a tool's name of 129 letters in 258 bytes",
            host + one_field(16, "\u00e9".encode() * 129),
        ),
        ("heads-many", "65 membership heads", host + _heads(65)),
        ("heads-twice", "a membership head given twice", host + one_field(7, ID) * 2),
        ("heads-short", "a membership head of 31 bytes", host + one_field(7, ID[:31])),
        (
            "heads-last-byte",
            "heads that descend in their last byte alone",
            host + one_field(7, bytes([7] * 31 + [2])) + one_field(7, bytes([7] * 31 + [1])),
        ),
        ("host-short", "a host of 31 bytes", message({1: HAL.public[:31]})),
        ("profile-short", "a profile of 31 bytes", message({1: HAL.public, 2: ID[:31]})),
        ("executor-long", "an executor of 33 bytes", message({1: HAL.public, 6: ID + b"x"})),
        (
            "call-key-short",
            "a key of 31 bytes for a call",
            host + one_field(17, one_field(1, ID[:31]) + one_field(2, ID)),
        ),
        ("call-key-half", "a call key without the digest of its call", host + one_field(17, call)),
        (
            "call-key-long",
            "a call's digest of 33 bytes",
            host + one_field(17, call + one_field(2, ID + b"x")),
        ),
        ("call-key-empty", "an empty call key", host + one_field(17, b"")),
    ):
        add(f"body-{name}", comment, REQUEST, content)
    _seals(cases, add)
    _members(add)


def _seals(cases: Cases, add: Add) -> None:
    ids = [cases.log.entries[n].id for n in ("hello", "reply", "ask")]
    projected = one_field(1, ids[0]) + one_field(2, 3) + one_field(3, 9)
    add(
        "seal-projections",
        "an unknown outcome is carried, and 0 as well",
        SEAL,
        seal_body(cases.log, f9=[projected, one_field(1, ids[0])]),
        fits=True,
    )
    add("seal-tokens-zero", "counts of 0", SEAL, seal_body(cases.log, f7=bytes(3)), fits=True)
    add(
        "seal-twice",
        "an entry listed twice parses: coverage refuses it",
        SEAL,
        seal_body(cases.log, f3=[ids[0], ids[0], ids[2]]),
        fits=True,
    )
    for name, comment, changed in (
        ("request-none", "no request", {"f1": b""}),
        ("request-short", "a request of 31 bytes", {"f1": ids[2][:31]}),
        ("prev-short", "a prev_seal of 31 bytes", {"f2": ids[2][:31]}),
        ("entry-short", "a listed id of 31 bytes", {"f3": [*ids[:2], ids[2][:31]]}),
        ("entry-empty", "an empty listed id", {"f3": [*ids[:2], b""]}),
        ("profile-none", "no profile", {"f4": b""}),
        ("profile-long", "a profile of 33 bytes", {"f4": ID + b"x"}),
        ("context-short", "a context digest of 31 bytes", {"f5": ID[:31]}),
        ("render-none", "no render digest", {"f6": b""}),
        ("tokens-none", "no token counts", {"f7": b""}),
        ("tokens-more", "more token counts than entries", {"f7": b"\5\5\5\5"}),
        ("heads-order", "membership heads not ascending", {"f8": sorted(ids, reverse=True)}),
        ("head-short", "a membership head of 31 bytes", {"f8": [ids[0][:31]]}),
        ("head-long", "a membership head of 33 bytes", {"f8": [ID + b"x"]}),
        ("heads-many", "65 membership heads", {"f8": [bytes([i]) * 32 for i in range(1, 66)]}),
        ("projection-short", "a projected entry of 31 bytes", {"f9": [one_field(1, ID[:31])]}),
        ("projection-empty", "an empty projection", {"f9": [b""]}),
    ):
        add(f"body-seal-{name}", comment, SEAL, seal_body(cases.log, **changed))


def _members(add: Add) -> None:
    cut = message({1: Fixed(1), 2: 1, 4: ID})
    for name, comment, content in (
        ("grant-key-long", "a granted key of 33 bytes", one_field(1, message({1: ID + b"x"}))),
        ("grant-empty", "a grant without a key", one_field(1, b"")),
        ("revoke-key-short", "a revoked key of 31 bytes", one_field(2, message({1: ID[:31]}))),
        ("revoke-empty", "a revocation without a key", one_field(2, b"")),
        (
            "cut-id-none",
            "a cut without an id",
            one_field(2, message({1: BOB.public, 2: [message({1: Fixed(1), 2: 1})]})),
        ),
        (
            "cut-id-short",
            "a cut's id of 31 bytes",
            one_field(2, message({1: BOB.public, 2: [cut, message({4: ID[:31]})]})),
        ),
        (
            "cuts-many",
            "1,025 cuts",
            one_field(2, message({1: BOB.public, 2: [message({4: ID})] * 1_025})),
        ),
        ("change-unknown", "an unknown change of membership", one_field(3, b"new")),
    ):
        add(f"body-{name}", comment, MEMBER, content)


def cuts(cases: Cases) -> None:
    """Add cuts that a revocation may have, whatever they mean."""
    log, ids = cases.log, {n: e.id for n, e in cases.log.entries.items()}
    odd = message({1: Fixed(7), 2: 4, 3: 9, 4: ids["reply"]})
    none = one_field(4, ids["hello"])
    for name, comment, raw, listed in (
        (
            "cut-odd",
            "a cut with an epoch, a track and a seq that its entry has not",
            [odd],
            "reply",
        ),
        ("cut-bare", "a cut with epoch, track and seq 0", [none], "hello"),
        ("cut-twice", "a cut given twice", [odd, odd], "reply"),
        ("cuts-full", "1,024 cuts", [none] * 1_024, "hello"),
    ):
        content = one_field(2, message({1: EVE.public, 2: raw}))
        header = log.header(name, ADA, MEMBER, content, parents=["grant-hal"], listed=[listed])
        cases.add(name, comment, SEALED, signed(header, ADA), "admitted")
