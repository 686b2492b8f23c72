"""Cases of admission.json about entries that come again, and about single words of 02 §6."""

from dataclasses import replace

from spec.vectors.make.admission_log import ADA, BOB, EVE, SEALED, Cases
from spec.vectors.make.build import GENESIS, MEMBER, MESSAGE, Header, genesis, grant, said, signed


def again(cases: Cases) -> None:
    """Add entries that are pending already, and one that names such an entry."""
    late = cases.log.entries
    cases.add(
        "again-pending",
        "a pending entry once more",
        ["genesis", "grant-bob", "reply"],
        late["reply"],
        "duplicate",
    )
    cases.add(
        "pending-on-pending",
        "a pending entry is missing too: it is not admitted",
        ["genesis", "grant-bob", "grant-hal", "reply"],
        late["ask"],
        "pending",
        missing=[late["hello"].id, late["reply"].id],
    )


def filled(cases: Cases) -> None:
    """Add bodies that come after their entries."""
    log = cases.log
    whole = signed(log.header("later", ADA, MESSAGE, said("x"), parents=["answer"]), ADA)
    wrong = replace(whole, body=b"?" * len(whole.header.body))
    cases.odd["later-bodiless"] = replace(whole, body=None)
    given = [*SEALED, "later-bodiless"]
    cases.add("fill", "the body of a known entry", given, whole, "duplicate")
    cases.add(
        "fill-wrong",
        "a wrong body is refused; the known entry stays as it is",
        given,
        wrong,
        "refused",
        "BODY_DIGEST_MISMATCH",
    )
    unsigned = replace(whole, signature=bytes(64))
    cases.add(
        "fill-unsigned",
        "the signature of a known entry is not looked at again",
        given,
        unsigned,
        "duplicate",
    )
    cases.add(
        "fill-then-wrong",
        "once its body is here, no other is looked at",
        [*given, "fill"],
        wrong,
        "duplicate",
    )
    waiting = signed(log.header("waiting", BOB, MESSAGE, said("x"), parents=["answer"]), BOB)
    cases.odd["waiting-bodiless"] = replace(waiting, body=None)
    cases.add(
        "fill-wrong-pending",
        "likewise for a pending entry",
        ["genesis", "grant-bob", "waiting-bodiless"],
        replace(waiting, body=b"?" * len(waiting.header.body)),
        "refused",
        "BODY_DIGEST_MISMATCH",
    )
    cases.odd["waiting-whole"] = waiting
    cases.add(
        "fill-then-wrong-pending",
        "likewise for a pending entry",
        ["genesis", "grant-bob", "waiting-bodiless", "waiting-whole"],
        replace(waiting, body=b"!" * len(waiting.header.body)),
        "duplicate",
    )


def empty_bodies(cases: Cases) -> None:
    """Add bodies that are there and have no bytes."""
    log = cases.log
    said_ = signed(log.header("empty", ADA, MESSAGE, said("x"), parents=["answer"]), ADA)
    granted = signed(log.header("empty-grant", ADA, MEMBER, grant(EVE, 1)), ADA)
    for name, entry in (("body-empty", said_), ("body-empty-control", granted)):
        cases.add(
            name,
            "a body without bytes is not an absent one",
            SEALED,
            replace(entry, body=b""),
            "refused",
            "BODY_DIGEST_MISMATCH",
        )


def role_numbers(cases: Cases) -> None:
    """Add grants of numbers that are no roles."""
    log = cases.log
    for number in (0, 9):
        entry = signed(log.header(f"role-{number}", ADA, MEMBER, grant(EVE, number)), ADA)
        cases.add(
            f"grant-role-{number}",
            f"a grant of the number {number}, which is no role, lets entries in",
            [*SEALED, "stranger"],
            entry,
            "admitted",
            admitted=[f"grant-role-{number}", "stranger"],
        )


def geneses(cases: Cases) -> None:
    """Add geneses that break several rules at once."""
    body = bytes(16) + genesis([ADA])
    for name, comment, changes, reason in (
        ("genesis-all", "conversation, seq and track at once", {"seq": 1, "track": 4}, None),
        ("genesis-epoch", "and epoch 0, which no entry may have", {"epoch": 0}, "FIELD_INVALID"),
    ):
        header = replace(
            Header(ADA.public, GENESIS, body, conversation=bytes(32)),
            **changes,  # type: ignore[arg-type]
        )
        cases.add(name, comment, [], signed(header, ADA), "refused", reason or "GENESIS_INVALID")
