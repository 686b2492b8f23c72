"""admission.json: a log, one more entry, and the verdict; one reason each."""

from dataclasses import replace

from spec.vectors.make import bounds, pending, repeated, steps
from spec.vectors.make.admission_log import (
    ADA,
    BASE,
    BOB,
    HAL,
    SALT,
    SEALED,
    Cases,
    admission_log,
    seal_body,
)
from spec.vectors.make.build import (
    CANCEL,
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
    Built,
    Fixed,
    Header,
    Key,
    NamedLog,
    genesis,
    message,
    one_field,
    request,
    said,
    signed,
)


def _malformed_headers(cases: Cases) -> None:
    log = cases.log
    plain = log.header("wire", ADA, MESSAGE, said("x"), parents=["answer"], basis="seal")
    data = plain.encode()
    cases.refused(
        "wire",
        "WIRE_MALFORMED",
        "an overlong varint behind a good header",
        signed(plain, ADA, data + b"\xf8\x01\x80\x00"),
    )
    cases.refused(
        "header-size",
        "HEADER_TOO_LARGE",
        "8,193 bytes, the rest an unknown field",
        signed(plain, ADA, data + one_field(99, bytes(8_193 - len(data) - 4))),
    )
    cases.refused(
        "body-size",
        "BODY_TOO_LARGE",
        "the header states 524,289 bytes",
        replace(signed(plain, ADA, message({**plain.fields(), 13: 524_289})), body=None),
    )
    for name, field in (("track", 4), ("kind", 10), ("conflict", 15)):
        header_bytes = message({**plain.fields(), field: 2**64 - 1})
        entry = signed(plain, ADA, header_bytes)
        cases.refused(f"{name}-negative", "WIRE_MALFORMED", f"{name} -1, in ten bytes", entry)
    for name, comment, fields in (
        ("epoch-zero", "epoch 0", {3: Fixed(0)}),
        ("kind-zero", "kind 0", {10: 0}),
        ("conflict-unknown", "conflict 2", {15: 2}),
        ("author-short", "an author of 31 bytes", {2: ADA.public[:31]}),
        ("parent-long", "a parent of 33 bytes", {7: [bytes(33)]}),
        ("parents-none", "no parents", {7: b""}),
        ("parents-order", "parents not ascending", {7: [b"\x02" * 32, b"\x01" * 32]}),
        ("parents-twice", "a parent given twice", {7: [b"\x02" * 32] * 2}),
        ("parents-many", "65 parents", {7: [bytes([i]) * 32 for i in range(1, 66)]}),
        ("prev-none", "seq 4 without prev", {6: b"", 5: 4}),
        ("prev-first", "prev at seq 0", {5: 0}),
        ("lamport-range", "lamport 2^53", {9: 2**53}),
        ("seq-range", "seq 2^53", {5: 2**53}),
        ("body-short", "a body of 15 bytes has no room for its salt", {13: 15}),
        ("digest-short", "a body digest of 31 bytes", {12: bytes(31)}),
        ("conversation-none", "no conversation, yet no genesis", {1: b""}),
    ):  # fmt: skip
        header_bytes = message({**plain.fields(), **fields})
        cases.refused(name, "FIELD_INVALID", comment, signed(plain, ADA, header_bytes))
    for name, comment, fields in (
        ("track-unknown", "track 4", {4: 4}),
        ("track-none", "no track", {4: 0}),
        ("track-of-kind", "a message on the document track", {4: DOCUMENTS}),
    ):
        header_bytes = message({**plain.fields(), **fields})
        cases.refused(name, "TRACK_INVALID", comment, signed(plain, ADA, header_bytes))


def _ancestors(cases: Cases) -> None:
    log = cases.log
    plain = log.header("place", ADA, MESSAGE, said("x"), parents=["answer"], basis="seal")
    document = log.write("note", BOB, DOCUMENT, one_field(1, b"\x00\x00"))
    hello, reply = log.entries["hello"], log.entries["reply"]
    for name, reason, comment, fields in (
        ("seq-gap", "SEQ_GAP", "seq skips one", {"seq": 3}),
        ("seq-again", "SEQ_GAP", "seq stands still", {"seq": 1}),
        ("prev-lane", "PREV_INVALID", "prev is in another author's lane", {"prev": reply.id}),
        ("prev-genesis", "PREV_INVALID", "prev is the genesis, which begins no lane but its own",
         {"prev": log.entries["genesis"].id, "seq": 1}),
        ("parent-track", "PARENT_INVALID", "a message follows a grant",
         {"parents": (log.entries["grant-bob"].id,)}),
        ("basis-kind", "BASIS_INVALID", "the basis is a message", {"basis": hello.id}),
        ("lamport-low", "LAMPORT_INVALID", "lamport one too small",
         {"lamport": plain.lamport - 1}),
        ("lamport-high", "LAMPORT_INVALID", "lamport one too great",
         {"lamport": plain.lamport + 1}),
    ):  # fmt: skip
        cases.refused(name, reason, comment, signed(replace(plain, **fields), ADA))  # type: ignore[arg-type]
    noted = replace(document.header, basis=log.entries["seal"].id, lamport=7)
    cases.refused(
        "basis-track",
        "BASIS_INVALID",
        "a document entry has a basis",
        signed(replace(noted, lamport=1 + log.entries["seal"].header.lamport), BOB),
    )
    revocation = log.header(
        "lamport-listed", ADA, MEMBER,
        one_field(2, message({1: BOB.public, 2: [_cut(reply)]})), parents=["grant-hal"],
    )  # fmt: skip
    cases.refused(
        "lamport-listed",
        "LAMPORT_INVALID",
        "not above an entry its body lists",
        signed(replace(revocation, lamport=1), ADA),
    )
    elsewhere = NamedLog((ADA, BOB)).entries["genesis"].id
    cases.refused(
        "conversation-other",
        "CONVERSATION_MISMATCH",
        "of another conversation",
        signed(replace(plain, conversation=elsewhere), ADA),
    )


def _cut(entry: Built) -> bytes:
    lane = {1: Fixed(entry.header.epoch), 2: entry.header.track, 3: entry.header.seq}
    return message({**lane, 4: entry.id})


def _signatures(cases: Cases) -> None:
    log = cases.log
    plain = log.header("sign", ADA, MESSAGE, said("x"), parents=["answer"], basis="seal")
    good = signed(plain, ADA)
    cases.refused(
        "signature-other", "SIGNATURE_INVALID", "signed by another member", signed(plain, BOB)
    )
    cases.refused(
        "signature-untagged",
        "SIGNATURE_INVALID",
        "signed without the tag",
        replace(good, signature=ADA.private.sign(good.header_bytes)),
    )
    small = replace(plain, author=b"\x01" + bytes(31), prev=b"", seq=0)
    cases.refused(
        "key-small-order", "KEY_INVALID", "the author is the identity point", signed(small, ADA)
    )
    cases.refused(
        "body-digest",
        "BODY_DIGEST_MISMATCH",
        "one bit of the body changed",
        replace(good, body=plain.body[:-1] + bytes([plain.body[-1] ^ 1])),
    )
    cases.refused("body-length", "BODY_DIGEST_MISMATCH", "the body lost a byte",
                  replace(good, body=plain.body[:-1]))  # fmt: skip
    longer = message({**plain.fields(), 13: len(plain.body) + 1})
    cases.refused("body-bytes", "BODY_DIGEST_MISMATCH", "the digest is right, the size is not",
                  signed(plain, ADA, longer))  # fmt: skip


def _bodies(cases: Cases) -> None:
    log = cases.log
    asked = log.header("bare", ADA, REQUEST, request(HAL), parents=["answer"], basis="seal")
    cases.refused(
        "body-missing",
        "BODY_MISSING",
        "a control entry without its body",
        replace(signed(asked, ADA), body=None),
    )
    stop = [one_field(5, b"!") for _ in range(17)]
    for name, comment, kind, content in (
        ("body-wire", "a control body outside the strict subset", MEMBER,
         one_field(1, one_field(2, 2) + one_field(1, BOB.public))),
        ("body-no-change", "a member entry that changes nothing", MEMBER, b""),
        ("body-key-short", "a granted key of 31 bytes", MEMBER,
         one_field(1, message({1: BOB.public[:31], 2: 2}))),
        ("body-stop-many", "17 stop strings", REQUEST, request(HAL) + b"".join(stop)),
        ("body-formats-two", "a schema and a regular expression", REQUEST,
         request(HAL) + one_field(12, b"{}") + one_field(13, b"a")),
        ("body-format-empty", "a grammar without text", REQUEST,
         request(HAL) + one_field(14, b"")),
        ("body-tool-name-long", "a tool's name of 257 bytes", REQUEST,
         request(HAL) + one_field(15, 3) + one_field(16, b"t" * 257)),
        ("body-heads-order", "membership heads not ascending", REQUEST,
         request(HAL) + one_field(7, b"\x02" * 32) + one_field(7, b"\x01" * 32)),
        ("body-host-none", "a request without a host", REQUEST, one_field(3, b"")),
        ("body-seal-empty", "a seal that lists nothing", SEAL, seal_body(log, f3=b"", f7=b"")),
        ("body-seal-tokens", "fewer token counts than entries", SEAL, seal_body(log, f7=b"\5\5")),
        ("body-salt-only", "a seal that is only its salt", SEAL, b""),
    ):  # fmt: skip
        by = HAL if kind == SEAL else ADA
        parents = ["grant-hal"] if kind == MEMBER else ["ask"]
        header = log.header(name, by, kind, content, parents=parents)
        cases.refused(name, "BODY_MALFORMED", comment, signed(header, by))


def _geneses(cases: Cases) -> None:
    def begin(name: str, comment: str, reason: str, content: bytes, **fields: object) -> None:
        header = Header(ADA.public, GENESIS, SALT + content)
        entry = signed(replace(header, **fields), ADA)  # type: ignore[arg-type]
        cases.add(name, comment, [], entry, "refused", reason)

    begin(
        "genesis-owner", "the author is not the first owner", "GENESIS_INVALID", genesis([BOB, ADA])
    )
    begin("genesis-seq", "a genesis at seq 1", "GENESIS_INVALID", genesis([ADA]), seq=1)
    begin(
        "genesis-track",
        "a genesis on a track",
        "GENESIS_INVALID",
        genesis([ADA]),
        track=CONVERSATION,
    )
    begin(
        "genesis-parents",
        "a genesis that follows something",
        "GENESIS_INVALID",
        genesis([ADA]),
        parents=(bytes(32),),
    )
    begin("genesis-owners-none", "no owners", "BODY_MALFORMED", genesis([]))
    begin("genesis-owners-twice", "an owner named twice", "BODY_MALFORMED", genesis([ADA, ADA]))
    begin("genesis-owners-many", "17 owners", "BODY_MALFORMED",
          genesis([ADA, *(Key(f"owner {i}") for i in range(16))]))  # fmt: skip


def _admitted(cases: Cases) -> None:
    log = cases.log
    cases.add("genesis", "a log begins", [], log.entries["genesis"], "admitted")
    cases.add("again", "the same entry once more", BASE, log.entries["hello"], "duplicate")
    plain = log.header("plain", ADA, MESSAGE, said("x"), parents=["answer"], basis="seal")
    cases.add("message", "a message after an answer", SEALED, signed(plain, ADA), "admitted")
    form = request(HAL) + one_field(13, b"yes|no") + one_field(15, 1)
    asked = log.header("asked", ADA, REQUEST, form, parents=["answer"], basis="seal")
    cases.add("format", "a request that states the form of its answer", SEALED,
              signed(asked, ADA), "admitted")  # fmt: skip
    cases.add(
        "bodiless",
        "any but a control body may be absent",
        SEALED,
        replace(signed(replace(plain, epoch=2, seq=0, prev=b""), ADA), body=None),
        "admitted",
    )
    other = log.header("fork", ADA, MESSAGE, said("y"), parents=["genesis"], prev=None)
    cases.add(
        "equivocation",
        "a second entry at one lane position",
        SEALED,
        signed(other, ADA),
        "admitted",
    )
    odd = log.header("odd", BOB, 99, b"\xff", parents=["answer"], track=CONVERSATION)
    cases.add(
        "kind-unknown", "an unknown kind, whatever its body", SEALED, signed(odd, BOB), "admitted"
    )
    bad = log.header("bad", BOB, MESSAGE, b"\xff", parents=["answer"])
    cases.add(
        "body-void", "a message whose body does not parse", SEALED, signed(bad, BOB), "admitted"
    )
    reader = log.header("void", HAL, CANCEL, b"", parents=["ask"])
    cases.add(
        "role-void",
        "a role that forbids the kind makes the entry void, not refused",
        SEALED,
        signed(reader, HAL),
        "admitted",
    )
    join = log.header("join", BOB, JOIN, b"", parents=["grant-bob", "grant-hal"], track=MEMBERSHIP)
    cases.add("join", "a join on the membership track", SEALED, signed(join, BOB), "admitted")
    carried = signed(plain, ADA, plain.encode() + one_field(99, b"new"))
    cases.add("field-unknown", "a header field of a newer version", SEALED, carried, "admitted")


def build() -> dict[str, object]:
    """Return the file."""
    log = admission_log()
    cases = Cases(log)
    for part in (
        _admitted, pending.strangers, pending.pending, pending.released, repeated.again,
        repeated.filled, repeated.empty_bodies, repeated.role_numbers, repeated.geneses,
        _malformed_headers, _ancestors, _signatures, _bodies, _geneses,
        bounds.headers, bounds.full_headers, bounds.geneses, bounds.genesis_parents,
        bounds.bodies, bounds.cuts,
        steps.two_faults, steps.flags, steps.formats, steps.proposed_stops, steps.named,
        steps.released_wrong, steps.wrong_and_waiting,
    ):  # fmt: skip
        part(cases)
    entries = {**log.entries, **cases.odd}
    assert len(entries) == len(log.entries) + len(cases.odd)
    return {
        "file": "admission",
        "spec": "spec/02-entry §6",
        "comment": "Give the log the entries named in `given`, in that order, then `entry`."
        " `verdict` is admitted (with the names now in the log, ancestors first), pending (with the"
        " ids missing; none: a grant), duplicate, or refused with `reason`. The log is of"
        " `conversation`; where a genesis comes and nothing is given, of that one's.",
        **log.as_json(),
        "entries": {name: entry.as_json() for name, entry in entries.items()},
        "vectors": cases.vectors,
    }
