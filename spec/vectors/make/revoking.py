"""Cases of visibility.json: who resigns, who grants, and heads of lanes (ORD-2 to 4, ORD-14)."""

from collections.abc import Callable

from spec.vectors.make.build import HOST, MEMBER, MESSAGE, OWNER, READER, WRITER, grant, said
from spec.vectors.make.members import ADA, BEA, BOB, CAL, DAN, EVE, HAL, begin, vector


def _owner_resigned() -> dict[str, object]:
    log = begin()
    log.grant("grant-bob", ADA, BOB, WRITER)
    log.write("words", BOB, MESSAGE, said("x"))
    log.revoke("resign", BEA, BEA, [], parents=["grant-bob"])
    log.revoke("of-bob", BEA, BOB, [], parents=["resign"])
    return vector(
        "self-owner-revokes",
        "what an owner who resigned without cuts revokes or grants does not count",
        log,
        void=("resign", "of-bob"),
        uncovered=("of-bob",),
        members={ADA: ["OWNER"], BOB: ["WRITER"]},
    )


def _host_grants() -> dict[str, object]:
    log = begin(ADA)
    log.grant("grant-hal", ADA, HAL, HOST)
    log.keys["eve"] = EVE
    log.write("grant-eve", HAL, MEMBER, grant(EVE, WRITER), parents=["grant-hal"])
    log.write("words", EVE, MESSAGE, said("x"))
    log.write("answer", HAL, 7, b"", parents=["words"])
    return vector(
        "host-grants",
        "a host's grant does not count: `words` is admitted for it, and covered as `answer` follows"
        " it, yet void",
        log,
        void=("grant-eve", "words"),
        members={ADA: ["OWNER"], HAL: ["HOST"]},
    )


def _cut_owner() -> dict[str, object]:
    log = begin(ADA)
    log.grant("owner-cal", ADA, CAL, OWNER)
    log.grant("owner-dan", CAL, DAN, OWNER, parents=["owner-cal"])
    log.grant("grant-eve", DAN, EVE, WRITER, parents=["owner-dan"])
    log.write("words", EVE, MESSAGE, said("x"))
    log.revoke("revoke-cal", ADA, CAL, [], parents=["grant-eve"])
    return vector(
        "owner-behind-cut",
        "the grant that made `dan` an owner lies behind a cut: `dan` is none, and its grants do not"
        " count",
        log,
        void=("owner-dan", "grant-eve", "words"),
        uncovered=("words",),
        members={ADA: ["OWNER"]},
    )


def _twice() -> dict[str, object]:
    log = begin(ADA)
    log.grant("grant-bob", ADA, BOB, WRITER)
    log.grant("grant-hal", ADA, HAL, HOST, parents=["grant-bob"])
    log.write("one", BOB, MESSAGE, said("x"))
    log.write("two", BOB, MESSAGE, said("x"))
    log.revoke("resign", BOB, BOB, ["two"], parents=["grant-hal"])
    log.revoke("resign-again", BOB, BOB, ["one"], parents=["resign"], epoch=2)
    log.revoke("resign-hal", HAL, HAL, [], parents=["grant-hal"])
    return vector(
        "self-twice",
        "a writer resigns twice: both count, and the cuts of both; a host's resignation needs no"
        " form",
        log,
        void=("two", "resign", "resign-again", "resign-hal"),
        members={ADA: ["OWNER"]},
    )


def _reader_two_parents() -> dict[str, object]:
    log = begin(ADA)
    log.grant("grant-cal", ADA, CAL, READER)
    log.revoke("resign", CAL, CAL, [], parents=["genesis", "grant-cal"])
    return vector(
        "self-reader-two-parents",
        "a reader's resignation that follows the genesis and something else does not count",
        log,
        void=("resign",),
        uncovered=("resign",),
        members={ADA: ["OWNER"], CAL: ["READER"]},
    )


def _reader_twice() -> dict[str, object]:
    log = begin(ADA)
    log.grant("grant-cal", ADA, CAL, READER)
    log.grant("grant-again", ADA, CAL, READER, parents=["grant-cal"])
    log.grant("grant-nine", ADA, CAL, 9, parents=["grant-again"])
    log.revoke("resign", CAL, CAL, [], parents=["grant-nine"])
    return vector(
        "self-reader-granted-twice",
        "a key that was granted READER twice, and a number that is no role, is a reader: its"
        " resignation needs the form",
        log,
        void=("resign",),
        uncovered=("resign",),
        members={ADA: ["OWNER"], CAL: ["READER"]},
    )


def _cut_of_other_track() -> dict[str, object]:
    log = begin(ADA)
    log.grant("grant-bob", ADA, BOB, WRITER)
    log.write("words", BOB, MESSAGE, said("x"))
    log.revoke("revoke-bob", ADA, BOB, ["words"], track_off=1, parents=["grant-bob"])
    return vector(
        "cut-of-other-track",
        "a cut that states another track than its entry's keeps nothing",
        log,
        void=("words",),
        members={ADA: ["OWNER"]},
    )


def _twin_follows() -> dict[str, object]:
    log = begin(ADA)
    log.grant("grant-bob", ADA, BOB, WRITER)
    log.write("one", BOB, MESSAGE, said("x"))
    log.write("two", BOB, MESSAGE, said("x"), parents=["one"])
    log.write("twin", BOB, MESSAGE, said("x"), parents=["two"], prev="one")
    log.write("long", ADA, MESSAGE, said("x"), epoch=2)
    log.write("side", ADA, MESSAGE, said("x"), epoch=2)
    log.write("side-more", ADA, MESSAGE, said("x"), epoch=2)
    log.write("short", ADA, MESSAGE, said("y"), epoch=2, prev="long")
    for epoch in (255, 256, 2**33 + 3):
        log.write(f"epoch-{epoch}", ADA, MESSAGE, said("x"), epoch=epoch)
    return vector(
        "heads-of-forked-lanes",
        "`twin` follows `two`, and both are heads of their lane: prev alone makes an entry none; so"
        " are the ends of both sides of a fork, however long; epochs are sorted as numbers",
        log,
        members={ADA: ["OWNER"], BOB: ["WRITER"]},
    )


CASES: tuple[Callable[[], dict[str, object]], ...] = (
    _owner_resigned, _host_grants, _cut_owner, _twice, _reader_two_parents, _reader_twice,
    _cut_of_other_track,
    _twin_follows,
)  # fmt: skip
