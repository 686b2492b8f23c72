"""Cases of visibility.json about resignations, readers and keys without a role (ORD-3, ORD-13)."""

from collections.abc import Callable

from spec.vectors.make.build import JOIN, MEMBER, MESSAGE, READER, WRITER, Key, grant, said
from spec.vectors.make.members import ADA, BEA, BOB, CAL, EVE, begin, vector

OWNERS: dict[Key, list[str]] = {ADA: ["OWNER"], BEA: ["OWNER"]}


def _no_role() -> dict[str, object]:
    log = begin()
    log.grant("grant-bob", ADA, BOB, WRITER)
    log.write("void-grant", BOB, MEMBER, grant(EVE, WRITER), parents=["grant-bob"])
    log.keys["eve"] = EVE
    log.revoke("resign", EVE, EVE, [], parents=["grant-bob"])
    return vector(
        "self-no-role",
        "a key without a role resigns nothing: its entry is admitted for the void grant, which"
        " nobody need hold, and is not covered",
        log,
        void=("void-grant", "resign"),
        uncovered=("resign",),
        members={**OWNERS, BOB: ["WRITER"]},
    )


def _reader() -> dict[str, object]:
    log = begin()
    log.grant("grant-cal", ADA, CAL, READER)
    for epoch in (2, 3, 4):
        log.write(f"join-{epoch}", CAL, JOIN, b"", track=3, epoch=epoch)
        log.revoke(f"resign-{epoch}", CAL, CAL, [], epoch=epoch + 10)
    resigned = sorted((f"resign-{n}" for n in (2, 3, 4)), key=lambda n: log.entries[n].id)
    joins = ("join-2", "join-3", "join-4")
    return vector(
        "self-reader",
        "a reader resigns by the first entry of a lane, behind the genesis, without cuts; of"
        " several the least in (lamport, id) counts, and is all that is covered of it",
        log,
        void=(*joins, *resigned),
        uncovered=(*joins, *resigned[1:]),
        members=OWNERS,
    )


def _reader_form() -> dict[str, object]:
    log = begin()
    log.grant("grant-cal", ADA, CAL, READER)
    joins = [f"join-{epoch}" for epoch in (2, 3, 4)]
    for epoch in (2, 3, 4):
        log.write(f"join-{epoch}", CAL, JOIN, b"", track=3, epoch=epoch)
    log.revoke("follows-grant", CAL, CAL, [], parents=["grant-cal"], epoch=5)
    log.revoke("follows-joins", CAL, CAL, [], parents=joins, epoch=6)
    log.revoke("second", CAL, CAL, [], epoch=2)
    log.revoke("with-cut", CAL, CAL, ["join-3"], epoch=7)
    others = ("follows-grant", "follows-joins", "second", "with-cut")
    return vector(
        "self-reader-form",
        "a reader's resignation in another form does not count: it would make what it names"
        " covered",
        log,
        void=(*joins, *others),
        uncovered=(*joins, *others),
        members={**OWNERS, CAL: ["READER"]},
    )


def _reader_cut() -> dict[str, object]:
    log = begin()
    log.grant("grant-cal", ADA, CAL, READER)
    for epoch in (2, 3):
        log.revoke(f"resign-{epoch}", CAL, CAL, [], epoch=epoch)
    first, second = sorted(("resign-2", "resign-3"), key=lambda n: log.entries[n].id)
    log.revoke("by-ada", ADA, CAL, [second])
    return vector(
        "self-reader-cut",
        "the least resignation lies behind a senior's cut: the one inside it counts",
        log,
        void=(first, second),
        uncovered=(first,),
        members=OWNERS,
    )


def _reader_followed() -> dict[str, object]:
    log = begin()
    log.grant("grant-cal", ADA, CAL, READER)
    log.write("murmur", CAL, MESSAGE, said("x"))
    log.write("alone", CAL, MESSAGE, said("y"), epoch=2)
    log.write("reply", ADA, MESSAGE, said("z"), parents=["murmur"])
    log.revoke("resign", CAL, CAL, [], parents=["grant-cal"])
    log.write("gathered", ADA, JOIN, b"", parents=["resign"], track=3)
    return vector(
        "reader-followed",
        "an entry of a reader is covered once a covered entry follows it; a resignation in"
        " another form does not count, covered or not",
        log,
        void=("murmur", "alone", "resign"),
        uncovered=("alone",),
        members={**OWNERS, CAL: ["READER"]},
    )


def _reader_promoted() -> dict[str, object]:
    log = begin()
    log.grant("grant-cal", ADA, CAL, READER)
    log.write("early", CAL, JOIN, b"", track=3)
    log.revoke("resign", CAL, CAL, [], parents=["early"], epoch=2)
    log.grant("promote", BEA, CAL, WRITER, parents=["grant-cal"])
    return vector(
        "reader-promoted",
        "a grant makes covered what a reader wrote before; its resignation then needs no form",
        log,
        void=("early", "resign"),
        members=OWNERS,
    )


def _ungranted() -> dict[str, object]:
    log = begin()
    log.keys["eve"] = EVE
    log.keys["cal"] = CAL
    log.revoke("of-eve", BEA, EVE, [])
    log.revoke("of-cal", BEA, CAL, [])
    log.grant("grant-eve", ADA, EVE, WRITER, parents=["of-eve"])
    log.write("words", EVE, MESSAGE, said("x"))
    return vector(
        "ungranted",
        "a key without a valid grant has no rank, and a revocation of it waits for one; it then"
        " counts, though it came first",
        log,
        void=("words",),
        uncovered=("words",),
        members=OWNERS,
    )


def _creator() -> dict[str, object]:
    log = begin()
    log.revoke("resign", ADA, ADA, [])
    log.grant("grant-bob", BEA, BOB, WRITER)
    log.write("words", BOB, MESSAGE, said("x"))
    return vector(
        "creator-resigned",
        "the genesis has effect although a cut makes it void: its other owner grants roles",
        log,
        void=("genesis", "resign"),
        members={BEA: ["OWNER"], BOB: ["WRITER"]},
    )


def _cut_resignations() -> dict[str, object]:
    log = begin()
    log.grant("grant-bob", BEA, BOB, WRITER)
    log.write("one", BOB, MESSAGE, said("x"))
    log.revoke("resign-bob", BOB, BOB, [], parents=["grant-bob"])
    log.revoke("resign-bea", BEA, BEA, [], parents=["grant-bob"])
    log.revoke("bea-on-bob", BEA, BOB, ["one", "resign-bob"], parents=["grant-bob"], epoch=2)
    log.revoke("ada-on-bob", ADA, BOB, ["one"], parents=["grant-bob"])
    log.revoke("ada-on-bea", ADA, BEA, ["grant-bob", "bea-on-bob"], parents=["grant-bob"])
    return vector(
        "self-cut",
        "a resignation behind a senior's cut does not count, an owner's neither, nor where one of"
        " two cuts keeps it: `grant-bob` and `one` stay",
        log,
        void=("resign-bob", "resign-bea"),
        uncovered=("resign-bea",),
        members={ADA: ["OWNER"]},
    )


CASES: tuple[Callable[[], dict[str, object]], ...] = (
    _no_role, _reader, _reader_form, _reader_cut, _reader_followed, _reader_promoted, _ungranted,
    _creator, _cut_resignations,
)  # fmt: skip
