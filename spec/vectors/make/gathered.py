"""Cases of visibility.json about membership heads that others reach, and JOINs beside each other.

They are of ORD-15.
"""

from collections.abc import Callable, Iterable

from spec.vectors.make.build import HOST, JOIN, MEMBERSHIP, OWNER, READER, WRITER, NamedLog
from spec.vectors.make.members import ADA, BEA, BOB, CAL, DAN, EVE, HAL, begin, vector


def in_order(log: NamedLog, names: Iterable[str]) -> list[str]:
    """Return names in (lamport, id) order."""
    return sorted(names, key=lambda n: (log.entries[n].header.lamport, log.entries[n].id))


def with_heads(
    found: dict[str, object], log: NamedLog, heads: Iterable[str], joined: Iterable[str] = ()
) -> dict[str, object]:
    """Return a vector with its membership heads, and those to be joined."""
    by_id = lambda n: log.entries[n].id  # noqa: E731
    return found | {
        "membership_heads": sorted(heads, key=by_id),
        "heads_to_join": sorted(joined, key=by_id),
        "requirements": ["ORD-15"],
    }


def _reached() -> dict[str, object]:
    log = begin()
    log.grant("owner-cal", ADA, CAL, OWNER)
    log.grant("by-prev", ADA, BOB, WRITER)
    log.grant("left", BEA, EVE, READER, epoch=2)
    log.grant("right", BEA, HAL, HOST, epoch=3)
    log.write("join", BOB, JOIN, b"", parents=["left", "right"], track=MEMBERSHIP)
    log.grant("behind-join", BEA, DAN, READER, parents=["join"], epoch=4)
    log.grant("kept", CAL, DAN, WRITER)
    log.revoke("revoke-cal", ADA, CAL, ["kept"], epoch=5)
    found = vector(
        "heads-reached",
        "a MEMBER entry reaches others through prev alone, and through any JOIN; one that a cut"
        " names is not reached by that",
        log,
        members={ADA: ["OWNER"], BEA: ["OWNER"], BOB: ["WRITER"], EVE: ["READER"], HAL: ["HOST"],
                 DAN: ["READER", "WRITER"]},
    )  # fmt: skip
    return with_heads(found, log, ["by-prev", "behind-join", "kept", "revoke-cal"])


def _many(count: int) -> tuple[NamedLog, list[str]]:
    """Write heads side by side, among them the grant to a host; return them in order(x)."""
    log = begin(ADA)
    log.grant("grant-hal", ADA, HAL, HOST)
    names = [f"g-{i}" for i in range(count - 1)]
    for number, name in enumerate(names):
        log.grant(name, ADA, BOB, WRITER, epoch=10 + number)
    return log, in_order(log, ["grant-hal", *names])


MANY = {ADA: ["OWNER"], BOB: ["WRITER"], HAL: ["HOST"]}


def _overlapping() -> dict[str, object]:
    log, heads = _many(71)
    heads.remove("grant-hal")
    log.grant("late", ADA, BOB, WRITER, parents=["grant-hal"], epoch=90)
    log.grant("grant-cal", ADA, CAL, HOST, epoch=91)
    log.write("void", CAL, JOIN, b"", parents=heads[10:13], track=MEMBERSHIP)
    log.revoke("revoke-cal", ADA, CAL, [], parents=["grant-cal"], epoch=91)
    for epoch, (name, parents) in enumerate(
        (("earlier", heads[:2]), ("beside", heads[4:6]), ("later", [heads[1], "late"]))
    ):
        log.write(name, HAL, JOIN, b"", parents=parents, track=MEMBERSHIP, epoch=1 + epoch)
    left = [heads[0], *heads[2:4], *heads[6:], "revoke-cal", "beside", "later"]
    left = in_order(log, left)
    found = vector(
        "heads-overlapping",
        "the latest of the JOINs stand first: of the heads of `earlier` one is left, so it stands"
        " for nothing; a void JOIN is none",
        log,
        void=("void",),
        uncovered=("void",),
        members=MANY,
    )
    return with_heads(found, log, left[-64:], left[: len(left) - 63])


def _very_many() -> dict[str, object]:
    log, heads = _many(129)
    found = vector(
        "heads-129",
        "of 129 heads the earliest 64 are to be joined first: a JOIN gathers no more",
        log,
        members=MANY,
    )
    return with_heads(found, log, heads[-64:], heads[:64])


def _one_too_many() -> dict[str, object]:
    log, heads = _many(65)
    found = vector(
        "heads-65",
        "of 65 heads the earliest two are to be joined first",
        log,
        members=MANY,
    )
    return with_heads(found, log, heads[-64:], heads[:2])


CASES: tuple[Callable[[], dict[str, object]], ...] = (
    _reached,
    _overlapping,
    _very_many,
    _one_too_many,
)
