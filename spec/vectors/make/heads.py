"""Cases of visibility.json about more than 64 membership heads, and which JOINs stand for them.

They are of ORD-15.
"""

from collections.abc import Callable

from spec.vectors.make.build import HOST, JOIN, MEMBERSHIP, READER, WRITER, NamedLog
from spec.vectors.make.gathered import in_order, with_heads
from spec.vectors.make.members import ADA, BEA, BOB, CAL, HAL, begin, vector

UNKNOWN = 77


def _many(count: int, early: int) -> tuple[NamedLog, list[str]]:
    """Write heads side by side, all but the first ones behind entries of an unknown kind."""
    log = begin()
    log.grant("grant-hal", ADA, HAL, HOST)
    before = "genesis"
    for step in ("step-0", "step-1", "step-2"):
        log.write(step, ADA, UNKNOWN, b"", parents=[before], epoch=2, track=MEMBERSHIP)
        before = step
    names = [f"g-{i}" for i in range(count - 1)]
    for number, name in enumerate(names):
        parent = "genesis" if number < early else f"step-{number % 2 + 1}"
        log.grant(name, ADA, BOB, WRITER, parents=[parent], epoch=10 + number)
    return log, in_order(log, ["grant-hal", *names])


def _without_effect() -> dict[str, object]:
    log = begin()
    log.grant("grant-bob", ADA, BOB, WRITER)
    log.revoke("upwards", BEA, ADA, [])
    log.revoke("of-nobody", BEA, CAL, [], epoch=2)
    log.keys["cal"] = CAL
    found = vector(
        "heads-without-effect",
        "a visible revocation is a head also where it does not count: of a senior owner, or of a"
        " key without a role",
        log,
        members={ADA: ["OWNER"], BEA: ["OWNER"], BOB: ["WRITER"]},
    )
    return with_heads(found, log, ["grant-bob", "upwards", "of-nobody"])


def _of_prev() -> dict[str, object]:
    log, heads = _many(70, early=3)
    log.grant("grant-cal", BEA, CAL, READER)
    log.write("join", BEA, JOIN, b"", parents=heads[:1], track=MEMBERSHIP)
    left = in_order(log, [*heads[1:], "join"])
    found = vector(
        "heads-of-different-lamports",
        "the latest heads by lamport stay, whatever their ids; `join` reaches `grant-cal` through"
        " prev, stands for two heads, and is among the earliest, which are to be joined",
        log,
        members={ADA: ["OWNER"], BEA: ["OWNER"], BOB: ["WRITER"], CAL: ["READER"], HAL: ["HOST"]},
    )
    return with_heads(found, log, left[-64:], left[: len(left) - 63])


def _void_covered() -> dict[str, object]:
    log, heads = _many(66, early=66)
    log.write("join", BEA, JOIN, b"", parents=heads[:3], track=MEMBERSHIP)
    log.write("behind", ADA, UNKNOWN, b"", parents=["join"], track=MEMBERSHIP)
    log.revoke("revoke-bea", ADA, BEA, [], epoch=3)
    left = in_order(log, [*heads, "revoke-bea"])
    found = vector(
        "heads-joined-by-void",
        "a JOIN that a cut makes void stands for nothing, though it is covered",
        log,
        void=("join",),
        members={ADA: ["OWNER"], BOB: ["WRITER"], HAL: ["HOST"]},
    )
    return with_heads(found, log, left[-64:], left[: len(left) - 63])


def _of_one() -> dict[str, object]:
    log, heads = _many(66, early=66)
    log.write("earlier", BEA, JOIN, b"", parents=heads[:3], track=MEMBERSHIP)
    log.write("of-one", BEA, JOIN, b"", parents=heads[:1], track=MEMBERSHIP, epoch=2)
    log.write("of-another", HAL, JOIN, b"", parents=heads[3:4], track=MEMBERSHIP)
    left = in_order(log, [*heads[3:], "earlier"])
    found = vector(
        "heads-joined-one-by-one",
        "a JOIN of one head stands for nothing, and leaves that head to an earlier one, which"
        " stands for all three it reaches",
        log,
        members={ADA: ["OWNER"], BEA: ["OWNER"], BOB: ["WRITER"], HAL: ["HOST"]},
    )
    return with_heads(found, log, left[-64:], [])


CASES: tuple[Callable[[], dict[str, object]], ...] = (
    _without_effect,
    _of_prev,
    _void_covered,
    _of_one,
)
