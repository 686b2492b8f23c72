"""visibility.json: the visible entries, folded from the membership track."""

from spec.vectors.make import cutting, gathered, heads, leaving, revoking
from spec.vectors.make.build import HOST, JOIN, MEMBER, MESSAGE, OWNER, READER, WRITER, grant, said
from spec.vectors.make.members import ADA, BEA, BOB, CAL, DAN, EVE, HAL, begin, vector


def _roles() -> dict[str, object]:
    log = begin(ADA)
    last = "genesis"
    for key, role in ((BOB, WRITER), (CAL, READER), (HAL, HOST), (DAN, 9)):
        log.grant(f"grant-{key.name}", ADA, key, role, parents=[last])
        last = f"grant-{key.name}"
    for key in (ADA, BOB, CAL, HAL, DAN):
        log.write(f"message-{key.name}", key, MESSAGE, said("x"))
    log.write("member-bob", BOB, MEMBER, grant(EVE, WRITER), parents=[last])
    log.write("message-eve", EVE, MESSAGE, said("x"))
    log.write("join-cal", CAL, JOIN, b"", parents=["message-bob"])
    log.write("unknown-cal", CAL, 99, b"", parents=["message-bob"])
    log.write("join-hal", HAL, JOIN, b"", parents=["message-bob"])
    void = (
        "message-cal", "message-hal", "message-dan", "member-bob", "message-eve", "join-cal",
    )  # fmt: skip
    return vector(
        "roles",
        "what each role may write; an unknown role is none, and a void grant gives none; what a"
        " reader writes is not covered, void or not",
        log,
        void=void,
        uncovered=("message-dan", "message-eve", "message-cal", "join-cal", "unknown-cal"),
        members={ADA: ["OWNER"], BOB: ["WRITER"], CAL: ["READER"], HAL: ["HOST"]},
    )


def _before_grant() -> dict[str, object]:
    log = begin(ADA)
    log.write("early", BOB, MESSAGE, said("x"))
    log.grant("reader", ADA, BOB, READER)
    log.grant("writer", ADA, BOB, WRITER, parents=["reader"])
    return vector(
        "before-grant",
        "roles add up, and hold for what was written before the grant",
        log,
        members={ADA: ["OWNER"], BOB: ["READER", "WRITER"]},
    )


def _cut() -> dict[str, object]:
    log = begin()
    log.grant("grant-bob", ADA, BOB, WRITER)
    for name in ("one", "two", "three"):
        log.write(name, BOB, MESSAGE, said(name))
    log.write("other-epoch", BOB, MESSAGE, said("x"), epoch=2)
    log.revoke("revoke-bob", ADA, BOB, ["two"], parents=["grant-bob"])
    return vector(
        "cut",
        "the cut keeps `two` and what precedes it in its lane; lanes not listed are void",
        log,
        void=("three", "other-epoch"),
        uncovered=("three", "other-epoch"),
        members={ADA: ["OWNER"], BEA: ["OWNER"]},
    )


def _cut_many() -> dict[str, object]:
    log = begin()
    log.grant("grant-bob", ADA, BOB, WRITER)
    for name in ("one", "two", "three"):
        log.write(name, BOB, MESSAGE, said(name))
    log.write("epoch-one", BOB, MESSAGE, said("x"), epoch=2)
    log.write("epoch-two", BOB, MESSAGE, said("x"), epoch=2)
    log.revoke("by-ada", ADA, BOB, ["three", "epoch-one"], parents=["grant-bob"])
    log.revoke("by-bea", BEA, BOB, ["two", "epoch-two"], parents=["grant-bob"])
    return vector(
        "cuts-several",
        "two revocations: an entry must satisfy both; what a valid revocation lists is covered",
        log,
        void=("three", "epoch-two"),
        members={ADA: ["OWNER"], BEA: ["OWNER"]},
    )


def _cut_followed() -> dict[str, object]:
    log = begin()
    log.grant("grant-bob", ADA, BOB, WRITER)
    log.write("said", BOB, MESSAGE, said("x"))
    log.write("reply", ADA, MESSAGE, said("y"), parents=["said"])
    log.revoke("revoke-bob", ADA, BOB, [], parents=["grant-bob"])
    return vector(
        "cut-followed",
        "void, yet covered: a valid entry follows it",
        log,
        void=("said",),
        members={ADA: ["OWNER"], BEA: ["OWNER"]},
    )


def _senior() -> dict[str, object]:
    log = begin()
    log.write("junior", BEA, MESSAGE, said("x"))
    log.write("senior", ADA, MESSAGE, said("x"))
    log.revoke("upwards", BEA, ADA, [])
    return vector(
        "senior",
        "a junior owner cannot revoke a senior one; the attempt is visible and does nothing",
        log,
        members={ADA: ["OWNER"], BEA: ["OWNER"]},
    )


def _cycle() -> dict[str, object]:
    log = begin()
    log.grant("grant-bob", BEA, BOB, WRITER)
    log.write("words", BOB, MESSAGE, said("x"))
    log.revoke("bea-revokes-ada", BEA, ADA, [], parents=["grant-bob"])
    log.revoke("ada-revokes-bea", ADA, BEA, [])
    return vector(
        "cycle",
        "each revokes the other, the junior with the smaller lamport too: seniority alone decides;"
        " what the revoked owner granted is gone with it",
        log,
        void=("grant-bob", "words", "bea-revokes-ada"),
        uncovered=("grant-bob", "words", "bea-revokes-ada"),
        members={ADA: ["OWNER"]},
    )


def _depth() -> dict[str, object]:
    log = begin(ADA)
    log.grant("owner-cal", ADA, CAL, OWNER)
    log.grant("owner-dan", ADA, DAN, OWNER, parents=["owner-cal"])
    log.grant("owner-eve", CAL, EVE, OWNER, parents=["owner-dan"])
    log.grant("writer-bob", ADA, BOB, WRITER, parents=["owner-eve"])
    log.revoke("peer", CAL, DAN, [], parents=["writer-bob"])
    log.revoke("peer-writer", CAL, BOB, [], parents=["peer"])
    log.revoke("junior", DAN, EVE, [], parents=["peer-writer"])
    return vector(
        "depth",
        "owners rank by depth of grant; equals cannot revoke each other, nor what an equal's"
        " senior granted; any strictly senior owner can",
        log,
        members={ADA: ["OWNER"], CAL: ["OWNER"], DAN: ["OWNER"], BOB: ["WRITER"]},
    )


def _self() -> dict[str, object]:
    log = begin()
    log.grant("grant-bob", ADA, BOB, WRITER)
    log.write("one", BOB, MESSAGE, said("x"))
    log.write("two", BOB, MESSAGE, said("x"))
    log.revoke("resign", BOB, BOB, ["one"], parents=["grant-bob"])
    return vector(
        "self",
        "a key with a role may revoke itself; the resignation is covered though its own cut leaves"
        " it out",
        log,
        void=("two", "resign"),
        uncovered=("two",),
        members={ADA: ["OWNER"], BEA: ["OWNER"]},
    )


def _self_late() -> dict[str, object]:
    log = begin()
    log.grant("grant-bob", ADA, BOB, WRITER)
    log.write("one", BOB, MESSAGE, said("x"))
    log.write("two", BOB, MESSAGE, said("x"))
    log.revoke("by-ada", ADA, BOB, ["two"], parents=["grant-bob"])
    log.revoke("resign", BOB, BOB, ["one"], parents=["grant-bob"])
    return vector(
        "self-late",
        "a resignation behind a senior's cut counts no more",
        log,
        void=("resign",),
        uncovered=("resign",),
        members={ADA: ["OWNER"], BEA: ["OWNER"]},
    )


def _again() -> dict[str, object]:
    log = begin()
    log.grant("grant-bob", ADA, BOB, WRITER)
    log.write("one", BOB, MESSAGE, said("x"))
    log.revoke("revoke-bob", ADA, BOB, ["one"], parents=["grant-bob"])
    log.grant("grant-again", ADA, BOB, WRITER, parents=["revoke-bob"])
    log.write("two", BOB, MESSAGE, said("x"))
    return vector(
        "again",
        "a revoked key is never granted again",
        log,
        void=("two",),
        uncovered=("two",),
        members={ADA: ["OWNER"], BEA: ["OWNER"]},
    )


def _minted() -> dict[str, object]:
    log = begin()
    log.grant("grant-eve", BEA, EVE, WRITER)
    log.write("spam", EVE, MESSAGE, said("x"))
    log.write("followed", EVE, MESSAGE, said("x"), epoch=2)
    log.write("reply", ADA, MESSAGE, said("y"), parents=["followed"])
    log.revoke("revoke-bea", ADA, BEA, [])
    return vector(
        "minted",
        "the grant behind the cut is void, so is what its key wrote; it is covered as far as a"
        " valid entry follows it, and admitted without the grant",
        log,
        void=("grant-eve", "spam", "followed"),
        uncovered=("grant-eve", "spam"),
        members={ADA: ["OWNER"]},
    )


def _fork() -> dict[str, object]:
    log = begin(ADA)
    log.write("one", ADA, MESSAGE, said("x"))
    log.write("two", ADA, MESSAGE, said("x"), parents=["one"])
    log.write("twin", ADA, MESSAGE, said("y"), parents=["one"], prev="one")
    return vector(
        "equivocation",
        "both entries at the forked position are visible, and both are heads",
        log,
        members={ADA: ["OWNER"]},
    )


def _fork_cut() -> dict[str, object]:
    log = begin()
    log.grant("grant-bob", ADA, BOB, WRITER)
    log.write("one", BOB, MESSAGE, said("x"))
    log.write("two", BOB, MESSAGE, said("x"))
    log.write("twin", BOB, MESSAGE, said("y"), prev="one")
    log.revoke("revoke-bob", ADA, BOB, ["twin"], parents=["grant-bob"])
    return vector(
        "equivocation-cut",
        "a cut names the valid one of two histories",
        log,
        void=("two",),
        uncovered=("two",),
        members={ADA: ["OWNER"], BEA: ["OWNER"]},
    )


def _foreign_cut() -> dict[str, object]:
    log = begin()
    log.grant("grant-bob", ADA, BOB, WRITER)
    log.write("one", BOB, MESSAGE, said("x"))
    log.write("own", ADA, MESSAGE, said("x"))
    log.revoke("revoke-bob", ADA, BOB, ["own"], parents=["grant-bob"])
    return vector(
        "cut-foreign",
        "a cut on another key's entry keeps nothing",
        log,
        void=("one",),
        uncovered=("one",),
        members={ADA: ["OWNER"], BEA: ["OWNER"]},
    )


def _host() -> dict[str, object]:
    log = begin(ADA)
    log.grant("grant-hal", ADA, HAL, HOST)
    log.write("message-ada", ADA, MESSAGE, said("x"))
    log.write("generation-ada", ADA, 7, b"", parents=["message-ada"])
    log.write("generation-hal", HAL, 7, b"", parents=["message-ada"])
    return vector(
        "host",
        "only a host writes generations, not even an owner does",
        log,
        void=("generation-ada",),
        members={ADA: ["OWNER"], HAL: ["HOST"]},
    )


def _critical() -> dict[str, object]:
    log = begin(ADA)
    last = "genesis"
    for key, role in ((BOB, WRITER), (CAL, READER), (HAL, HOST)):
        log.grant(f"grant-{key.name}", ADA, key, role, parents=[last])
        last = f"grant-{key.name}"
    for key in (ADA, BOB, CAL, HAL):
        log.write(f"critical-{key.name}", key, 99, b"", critical=True)
        log.write(f"unknown-{key.name}", key, 99, b"")
    return vector(
        "critical",
        "an unknown kind takes any role, a critical one an owner",
        log,
        void=("critical-bob", "critical-cal", "critical-hal"),
        uncovered=("critical-cal", "unknown-cal"),
        members={ADA: ["OWNER"], BOB: ["WRITER"], CAL: ["READER"], HAL: ["HOST"]},
    )


def _checkpoint() -> dict[str, object]:
    log = begin(ADA)
    last = "genesis"
    for key, role in ((BOB, WRITER), (HAL, HOST)):
        log.grant(f"grant-{key.name}", ADA, key, role, parents=[last])
        last = f"grant-{key.name}"
    for key in (ADA, BOB, HAL):
        log.write(f"checkpoint-{key.name}", key, 9, b"")
    return vector(
        "checkpoint",
        "a checkpoint, of kind 9, is a host's",
        log,
        void=("checkpoint-ada", "checkpoint-bob"),
        members={ADA: ["OWNER"], BOB: ["WRITER"], HAL: ["HOST"]},
    )


def _flagged() -> dict[str, object]:
    log = begin(ADA)
    log.grant("grant-bob", ADA, BOB, WRITER)
    log.grant("grant-cal", ADA, CAL, READER, parents=["grant-bob"])
    log.write("said", BOB, MESSAGE, said("x"), critical=True)
    for kind in (10, 11):
        log.write(f"kind-{kind}", CAL, kind, b"")
        log.write(f"critical-{kind}", BOB, kind, b"", critical=True)
    return vector(
        "critical-known",
        "a critical entry of a known kind takes the roles of that kind; 10 and 11 are unknown"
        " kinds as any others",
        log,
        void=("critical-10", "critical-11"),
        uncovered=("kind-10", "kind-11"),
        members={ADA: ["OWNER"], BOB: ["WRITER"], CAL: ["READER"]},
    )


def _cut_revocation() -> dict[str, object]:
    log = begin()
    for key in (BOB, CAL):
        log.grant(f"grant-{key.name}", ADA, key, WRITER)
        log.write(f"said-{key.name}", key, MESSAGE, said("x"))
    log.revoke("kept", BEA, CAL, [], parents=["grant-cal"])
    log.revoke("behind", BEA, BOB, [], parents=["grant-cal"])
    log.revoke("revoke-bea", ADA, BEA, ["kept"], parents=["grant-cal"])
    return vector(
        "cut-revocation",
        "a revocation by a senior owner counts only if it satisfies the cuts on that owner",
        log,
        void=("said-cal", "behind"),
        uncovered=("said-cal", "behind"),
        members={ADA: ["OWNER"], BOB: ["WRITER"]},
    )


def build() -> dict[str, object]:
    """Return the file."""
    cases = (
        _roles, _host, _before_grant, _cut, _cut_many, _cut_followed, _senior, _cycle, _depth,
        _self, _self_late, _again, _minted, _fork, _fork_cut, _foreign_cut, _critical, _checkpoint,
        _flagged, _cut_revocation, *leaving.CASES, *cutting.CASES, *gathered.CASES, *revoking.CASES,
        *heads.CASES,
    )  # fmt: skip
    return {
        "file": "visibility",
        "spec": "spec/03-order §2",
        "comment": "Admit all entries, in any order that admission takes. `members` are the keys"
        " with a role that are not revoked; `covered` is what the digest covers.",
        "vectors": [case() for case in cases],
    }
