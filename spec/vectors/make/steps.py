"""Cases of admission.json about the order of its steps, and about flags that steps ignore."""

from dataclasses import replace

from spec.vectors.make.admission_log import ADA, BASE, BOB, EVE, HAL, SALT, SEALED, Cases, seal_body
from spec.vectors.make.build import (
    CONVERSATION,
    DOCUMENT,
    DOCUMENTS,
    FORK,
    GENESIS,
    MEMBER,
    MESSAGE,
    REQUEST,
    SEAL,
    Fixed,
    Header,
    genesis,
    message,
    one_field,
    request,
    said,
    signed,
    varint,
)


def two_faults(cases: Cases) -> None:
    """Add entries that break two rules, of which the first is the reason."""
    log = cases.log
    plain = log.header("faults", ADA, MESSAGE, said("x"), parents=["answer"], basis="seal")
    data = message({**plain.fields(), 1: b"", 4: 4})
    cases.refused("fields-then-track", "FIELD_INVALID", "no conversation, and track 4",
                  signed(plain, ADA, data))  # fmt: skip
    stated = Header(ADA.public, GENESIS, SALT + genesis([ADA]), seq=1)
    large = signed(stated, ADA, message({**stated.fields(), 13: 524_289}))
    cases.add("size-then-genesis", "a genesis at seq 1 that states 524,289 bytes", [],
              replace(large, body=None), "refused", "BODY_TOO_LARGE")  # fmt: skip
    elsewhere = signed(replace(plain, conversation=bytes(32)), BOB)
    cases.refused("conversation-then-signature", "CONVERSATION_MISMATCH",
                  "of another conversation, and signed by another key", elsewhere)  # fmt: skip
    cases.refused("signature-then-body", "SIGNATURE_INVALID",
                  "signed by another member, and another body", replace(signed(plain, BOB),
                                                                        body=SALT))  # fmt: skip
    asked = log.header("faults-asked", ADA, REQUEST, request(HAL), parents=["answer"])
    cases.refused("signature-then-missing", "SIGNATURE_INVALID",
                  "signed by another member, and without its body",
                  replace(signed(asked, BOB), body=None))  # fmt: skip
    cases.refused("digest-then-parse", "BODY_DIGEST_MISMATCH",
                  "another body, which does not parse either",
                  replace(signed(asked, ADA), body=SALT))  # fmt: skip
    grant, hello = log.entries["grant-bob"].id, log.entries["hello"].id
    first = next(log.entries[n].id for n in SEALED[3:] if log.entries[n].id < grant)
    for name, reason, comment, fields in (
        ("parent-then-prev", "PARENT_INVALID", "a message follows a grant, and seq skips one",
         {"parents": (grant,), "seq": 9}),
        ("prev-then-basis", "SEQ_GAP", "seq skips one, and the basis is a message",
         {"seq": 9, "basis": hello}),
        ("basis-then-lamport", "BASIS_INVALID", "the basis is a message, and the lamport is wrong",
         {"basis": hello, "lamport": 99}),
        ("parent-track-among", "PARENT_INVALID", "the second of two parents is on another track",
         {"parents": (first, grant)}),
    ):  # fmt: skip
        cases.refused(name, reason, comment, signed(replace(plain, **fields), ADA))  # type: ignore[arg-type]
    _wrong_prev(cases)


def _wrong_prev(cases: Cases) -> None:
    """Add an entry whose prev is by its author in another epoch, and one on another track."""
    log = cases.log
    plain = log.header("faults-prev", BOB, MESSAGE, said("x"), parents=["answer"])
    other = signed(log.header("epoch-2", BOB, MESSAGE, said("x"), prev=None, epoch=2), BOB)
    note = signed(log.header("note-2", BOB, DOCUMENT, one_field(1, b"\x00\x00"), prev=None), BOB)
    for name, comment, before in (
        ("prev-epoch", "prev is in another epoch of its author", other),
        ("prev-track", "prev is on another track of its author", note),
    ):
        cases.odd[f"{name}-before"] = before
        entry = signed(replace(plain, prev=before.id, seq=1), BOB)
        given = [*SEALED, f"{name}-before"]
        cases.add(name, comment, given, entry, "refused", "PREV_INVALID")


def flags(cases: Cases) -> None:
    """Add entries with flags and numbers that admission does not look at."""
    log = cases.log
    plain = log.header("flags", ADA, MESSAGE, said("x"), parents=["answer"], conflict=FORK,
                       critical=True)  # fmt: skip
    cases.add("message-flags", "a critical message with the conflict FORK", SEALED,
              signed(plain, ADA), "admitted")  # fmt: skip
    begun = Header(ADA.public, GENESIS, SALT + genesis([ADA]), critical=1, conflict=FORK)
    cases.add("genesis-flags", "a critical genesis with the conflict FORK", [],
              signed(begun, ADA), "admitted")  # fmt: skip
    for number, track in ((10, DOCUMENTS), (11, CONVERSATION)):
        odd = log.header(f"kind-{number}", BOB, number, b"", prev=None, epoch=7, track=track)
        cases.add(f"kind-{number}", "a number that no kind has, on any track", SEALED,
                  signed(odd, BOB), "admitted")  # fmt: skip
    many = [9, 1, *range(100, 164)]
    stop_tokens = b"".join(map(varint, many))
    wide = message({1: HAL.public}) + one_field(3, one_field(10, b"") * 1_025)
    wide += one_field(10, stop_tokens) + one_field(11, 21)
    asked = log.header("wide", ADA, REQUEST, wide, parents=["answer"])
    cases.add("request-wide", "66 stop tokens in any order, 1,025 biases and 21 log probabilities:"
              " a host refuses such a request, admission does not", SEALED, signed(asked, ADA),
              "admitted")  # fmt: skip


def formats(cases: Cases) -> None:
    """Add response formats at their bound, which is of bytes."""
    log = cases.log
    full = log.header("format-full", ADA, REQUEST, request(HAL) + one_field(14, b"x" * 65_536),
                      parents=["answer"])  # fmt: skip
    cases.add("format-full", "a grammar of 65,536 bytes", SEALED, signed(full, ADA), "admitted")
    letters = "\u00e9".encode() * 32_768 + b"x"
    long = log.header("body-format-long", ADA, REQUEST, request(HAL) + one_field(14, letters),
                      parents=["answer"])  # fmt: skip
    cases.refused("body-format-long", "BODY_MALFORMED",
                  "a grammar of 32,769 letters in 65,537 bytes", signed(long, ADA))  # fmt: skip


def proposed_stops(cases: Cases) -> None:
    """Add geneses that propose stop strings; their bounds are those of a request."""
    begun = genesis([ADA])
    for name, comment, stops in (
        ("genesis-stop-full", "16 proposed stop strings", [b"!"] * 16),
        ("genesis-stop-many", "17 proposed stop strings", [b"!"] * 17),
        ("genesis-stop-empty", "an empty proposed stop string", [b"!", b""]),
    ):
        body = SALT + begun + b"".join(one_field(5, stop) for stop in stops)
        entry = signed(Header(ADA.public, GENESIS, body), ADA)
        if name.endswith("full"):
            cases.add(name, comment, [], entry, "admitted")
        else:
            cases.add(name, comment, [], entry, "refused", "BODY_MALFORMED")


def named(cases: Cases) -> None:
    """Add entries that let in what they list or have as their basis, and what they wait for."""
    log = cases.log
    listed = _by_eve(cases, "listed-eve", log.header("e-1", EVE, MESSAGE, said("y"), epoch=3))
    cut = message({1: Fixed(3), 2: CONVERSATION, 4: listed})
    content = one_field(2, message({1: EVE.public, 2: [cut]}))
    revoke = log.header("revoke", ADA, MEMBER, content, parents=["genesis"])
    cases.add("vouched-listed", "what a revocation lists needs no grant",
              [*SEALED, "listed-eve"], signed(revoke, ADA), "admitted",
              admitted=["listed-eve", "vouched-listed"])  # fmt: skip
    aside = log.header("e-2", EVE, SEAL, seal_body(log), parents=["ask"], epoch=4,
                       listed=["grant-hal"])  # fmt: skip
    basis = _by_eve(cases, "basis-eve", aside)
    on = log.header("on-eve", BOB, MESSAGE, said("x"), parents=["ask"])
    on = replace(on, basis=basis, lamport=aside.lamport + 1)
    cases.add("vouched-basis", "nor does the basis of an entry", [*SEALED, "basis-eve"],
              signed(on, BOB), "admitted", admitted=["basis-eve", "vouched-basis"])  # fmt: skip
    cases.add("pending-genesis-too", "the genesis is missing, besides what the entry names", [],
              log.entries["reply"], "pending",
              missing=[log.conversation, log.entries["hello"].id])  # fmt: skip


def _by_eve(cases: Cases, name: str, header: Header) -> bytes:
    cases.odd[name] = signed(header, EVE)
    return cases.odd[name].id


def wrong_and_waiting(cases: Cases) -> None:
    """Add entries that could wait, were they right: they are refused at once."""
    log = cases.log
    asked = log.header("hasty", ADA, REQUEST, request(HAL), parents=["reply"], epoch=8)
    good = signed(asked, ADA)
    no_request = log.header("hasty-bad", ADA, REQUEST, b"", parents=["reply"], epoch=8)
    given = [n for n in BASE if n not in ("reply", "ask")]
    for name, reason, comment, entry in (
        ("hasty-unsigned", "SIGNATURE_INVALID", "a parent is missing, and another key signed",
         signed(asked, BOB)),
        ("hasty-bodiless", "BODY_MISSING", "a parent is missing, and a request's body",
         replace(good, body=None)),
        ("hasty-digest", "BODY_DIGEST_MISMATCH", "a parent is missing, and the body is another",
         replace(good, body=SALT)),
        ("hasty-malformed", "BODY_MALFORMED", "a parent is missing, and a request names no host",
         signed(no_request, ADA)),
    ):  # fmt: skip
        cases.add(name, comment, given, entry, "refused", reason)
    eve = replace(log.header("hasty-eve", EVE, MESSAGE, said("x"), parents=["answer"]), lamport=99)
    cases.refused("stranger-lamport", "LAMPORT_INVALID", "a stranger's entry with a wrong lamport"
                  " does not wait for a grant", signed(eve, EVE))  # fmt: skip
    begun = Header(BOB.public, GENESIS, SALT + genesis([BOB]))
    cases.refused("genesis-other", "CONVERSATION_MISMATCH", "the genesis of another conversation",
                  signed(begun, BOB))  # fmt: skip


def released_wrong(cases: Cases) -> None:
    """Add entries that turn out wrong once what they waited for is here."""
    log = cases.log
    late = log.entries["reply"]
    wrong = log.header("wrong", ADA, MESSAGE, said("x"), parents=["reply"], epoch=8)
    bad = signed(replace(wrong, lamport=99), ADA)
    behind = log.header("behind", BOB, MESSAGE, said("y"), parents=["reply"], epoch=8)
    after = signed(replace(behind, parents=(bad.id,), lamport=100), BOB)
    cases.odd["waits-wrong"], cases.odd["waits-behind"] = bad, after
    before = [n for n in BASE if n not in ("reply", "ask")]
    given = [*before, "waits-wrong", "waits-behind"]
    cases.add("released-wrong", "what waited with a wrong lamport does not come in",
              given, late, "admitted")  # fmt: skip
    cases.add("released-wrong-behind", "what names it waits on",
              [*given, "reply"], after, "duplicate")  # fmt: skip
