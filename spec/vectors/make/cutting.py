"""Cases of visibility.json about several cuts of one lane, granted owners, and heads."""

from collections.abc import Callable

from spec.vectors.make.build import (
    CANCEL,
    DOCUMENT,
    HOST,
    JOIN,
    MEMBERSHIP,
    MESSAGE,
    OWNER,
    READER,
    REQUEST,
    TOOLS,
    WRITER,
    NamedLog,
    request,
    said,
)
from spec.vectors.make.members import ADA, BEA, BOB, CAL, DAN, EVE, HAL, begin, vector

OWNERS = {ADA: ["OWNER"], BEA: ["OWNER"]}


def _lane() -> NamedLog:
    """Write a lane of bob that forks behind `one`: two and three, twin and later."""
    log = begin()
    log.grant("grant-bob", ADA, BOB, WRITER)
    log.write("one", BOB, MESSAGE, said("one"))
    log.write("two", BOB, MESSAGE, said("two"))
    log.write("three", BOB, MESSAGE, said("three"))
    log.write("twin", BOB, MESSAGE, said("twin"), prev="one")
    log.write("later", BOB, MESSAGE, said("later"), prev="twin")
    return log


def _cuts(name: str, comment: str, *cuts: list[str], void: tuple[str, ...]) -> dict[str, object]:
    log = _lane()
    for number, (by, kept) in enumerate(zip((ADA, BEA, ADA), cuts, strict=False)):
        log.revoke(f"revoke-{number}", by, BOB, kept, parents=["grant-bob"])
    named = {n for kept in cuts for n in kept}
    before = {"two": ["one"], "three": ["two", "one"], "twin": ["one"], "later": ["twin", "one"]}
    covered = named | {b for n in named for b in before.get(n, [])}
    uncovered = tuple(n for n in ("one", "two", "three", "twin", "later") if n not in covered)
    return vector(name, comment, log, void=void, uncovered=uncovered, members=OWNERS)


def _branches() -> dict[str, object]:
    return _cuts(
        "cut-both-sides", "one revocation may cut both sides of a forked lane",
        ["two", "twin"], void=("three", "later"),
    )  # fmt: skip


def _branches_meet() -> dict[str, object]:
    return _cuts(
        "cut-both-sides-meet", "both sides, and one side by another: what satisfies both",
        ["two", "later"], ["three"], void=("three", "twin", "later"),
    )  # fmt: skip


def _one_meets_both() -> dict[str, object]:
    return _cuts(
        "cut-side-then-both", "one side first, then both: the order makes no difference",
        ["three"], ["two", "later"], void=("three", "twin", "later"),
    )  # fmt: skip


def _one_meets_both_turned() -> dict[str, object]:
    return _cuts(
        "cut-side-then-both-turned", "the same, with the two cuts turned",
        ["three"], ["later", "two"], void=("three", "twin", "later"),
    )  # fmt: skip


def _roots() -> dict[str, object]:
    log = begin()
    log.grant("grant-bob", ADA, BOB, WRITER)
    log.write("one", BOB, MESSAGE, said("one"))
    log.write("two", BOB, MESSAGE, said("two"))
    log.write("other", BOB, MESSAGE, said("other"), prev=None)
    log.write("later", BOB, MESSAGE, said("later"), prev="other")
    log.revoke("revoke-0", ADA, BOB, ["two"], parents=["grant-bob"])
    log.revoke("revoke-1", BEA, BOB, ["later"], parents=["grant-bob"])
    return vector(
        "cut-other-roots", "a lane forked at its first entry: the two sides have nothing in common",
        log, void=("one", "two", "other", "later"), members=OWNERS,
    )  # fmt: skip


def _both_and_both() -> dict[str, object]:
    return _cuts(
        "cut-both-twice", "both sides, twice", ["three", "twin"], ["two", "later"],
        void=("three", "later"),
    )  # fmt: skip


def _sides() -> dict[str, object]:
    return _cuts(
        "cut-other-sides", "one cuts one side, another the other: what is before the fork is left",
        ["three"], ["later"], void=("two", "three", "twin", "later"),
    )  # fmt: skip


def _shorter() -> dict[str, object]:
    return _cuts(
        "cut-shorter-first", "the shorter cut first, then a longer one, then one between them",
        ["one"], ["three"], ["two"], void=("two", "three", "twin", "later"),
    )  # fmt: skip


def _longer() -> dict[str, object]:
    return _cuts(
        "cut-longer-first", "the longer cut first", ["three"], ["one"], ["two"],
        void=("two", "three", "twin", "later"),
    )  # fmt: skip


def _none_then_some() -> dict[str, object]:
    return _cuts(
        "cut-none-first", "a revocation without cuts keeps nothing, whatever another keeps",
        [], ["three"], void=("one", "two", "three", "twin", "later"),
    )  # fmt: skip


def _other_seq() -> dict[str, object]:
    log = begin()
    log.grant("grant-bob", ADA, BOB, WRITER)
    log.write("one", BOB, MESSAGE, said("one"))
    log.write("two", BOB, MESSAGE, said("two"))
    log.revoke("revoke-bob", ADA, BOB, ["two"], parents=["grant-bob"], seq_off=1)
    return vector(
        "cut-other-seq", "a cut that gives another seq than its entry has keeps nothing", log,
        void=("one", "two"), members=OWNERS,
    )  # fmt: skip


def _other_epoch() -> dict[str, object]:
    log = begin()
    log.grant("grant-bob", ADA, BOB, WRITER)
    log.write("one", BOB, MESSAGE, said("one"))
    log.write("two", BOB, MESSAGE, said("two"))
    log.revoke("revoke-bob", ADA, BOB, ["two"], parents=["grant-bob"], epoch_off=1)
    return vector(
        "cut-other-epoch", "a cut that gives another epoch than its entry has keeps nothing", log,
        void=("one", "two"), members=OWNERS,
    )  # fmt: skip


def _granted_owner() -> dict[str, object]:
    log = begin(ADA)
    log.grant("owner-cal", ADA, CAL, OWNER)
    log.grant("owner-dan", CAL, DAN, OWNER, parents=["owner-cal"])
    log.grant("owner-eve", DAN, EVE, OWNER, parents=["owner-dan"])
    log.grant("owner-hal", EVE, HAL, OWNER, parents=["owner-eve"])
    log.grant("writer-bob", HAL, BOB, WRITER, parents=["owner-hal"])
    log.write("words", BOB, MESSAGE, said("x"))
    return vector(
        "granted-owner", "an owner grants as any other, however many made one another owners", log,
        members={**{key: ["OWNER"] for key in (ADA, CAL, DAN, EVE, HAL)}, BOB: ["WRITER"]},
    )  # fmt: skip


def _least_depth() -> dict[str, object]:
    log = begin(ADA)
    log.grant("owner-dan", ADA, DAN, OWNER)
    log.grant("cal-by-dan", DAN, CAL, OWNER, parents=["owner-dan"])
    log.grant("cal-by-ada", ADA, CAL, OWNER, parents=["cal-by-dan"])
    log.grant("eve-by-dan", DAN, EVE, OWNER, parents=["cal-by-ada"])
    log.revoke("cal-on-eve", CAL, EVE, [], parents=["eve-by-dan"])
    log.revoke("eve-on-cal", EVE, CAL, [], parents=["eve-by-dan"])
    return vector(
        "least-depth", "of two grants that make an owner the least deep gives the rank", log,
        void=("eve-on-cal",), uncovered=("eve-on-cal",),
        members={ADA: ["OWNER"], CAL: ["OWNER"], DAN: ["OWNER"]},
    )  # fmt: skip


def _lesser_grant() -> dict[str, object]:
    log = begin(ADA)
    log.grant("owner-dan", ADA, DAN, OWNER)
    log.grant("cal-writes", ADA, CAL, WRITER, parents=["owner-dan"])
    log.grant("owner-cal", DAN, CAL, OWNER, parents=["cal-writes"])
    log.revoke("dan-on-cal", DAN, CAL, [], parents=["owner-cal"])
    return vector(
        "lesser-grant", "a senior's grant of a lesser role does not raise the rank of an owner",
        log,
        members={ADA: ["OWNER"], DAN: ["OWNER"]},
    )  # fmt: skip


def _least_grant() -> dict[str, object]:
    log = begin(ADA)
    log.grant("owner-cal", ADA, CAL, OWNER)
    log.grant("bob-by-ada", ADA, BOB, WRITER, parents=["owner-cal"])
    log.grant("bob-by-cal", CAL, BOB, WRITER, parents=["bob-by-ada"])
    log.revoke("cal-on-bob", CAL, BOB, [], parents=["bob-by-cal"])
    log.write("words", BOB, MESSAGE, said("x"))
    return vector(
        "least-grant", "of two grants of a key the least deep gives its rank: the deeper one's"
        " author can't revoke it", log,
        members={ADA: ["OWNER"], CAL: ["OWNER"], BOB: ["WRITER"]},
    )  # fmt: skip


def _rank_of_no_role() -> dict[str, object]:
    log = begin(ADA)
    log.grant("owner-cal", ADA, CAL, OWNER)
    log.grant("odd-bob", ADA, BOB, 9, parents=["owner-cal"])
    log.grant("bob-by-cal", CAL, BOB, WRITER, parents=["odd-bob"])
    log.revoke("cal-on-bob", CAL, BOB, [], parents=["bob-by-cal"])
    log.write("words", BOB, MESSAGE, said("x"))
    return vector(
        "rank-of-no-role", "a grant of a number that is no role gives no rank either: the author"
        " of the deeper grant may revoke it", log, void=("words",), uncovered=("words",),
        members={ADA: ["OWNER"], CAL: ["OWNER"]},
    )  # fmt: skip


def _resigned_owner() -> dict[str, object]:
    log = begin()
    log.grant("before", BEA, BOB, WRITER)
    log.revoke("resign", BEA, BEA, ["before"], parents=["before"])
    log.revoke("resign-again", BEA, BEA, [], parents=["before"], epoch=2)
    return vector(
        "self-owner", "two resignations of an owner count, and what satisfies only one is void:"
        " the second keeps nothing, so the grant is gone", log,
        void=("before", "resign", "resign-again"), members={ADA: ["OWNER"]},
    )  # fmt: skip


def _self_grant() -> dict[str, object]:
    log = begin(ADA)
    log.grant("reader-cal", ADA, CAL, READER)
    log.grant("self-cal", CAL, CAL, WRITER)
    log.grant("self-ada", ADA, ADA, HOST, parents=["reader-cal"])
    log.write("by-ada", ADA, 7, b"", parents=["genesis"])
    log.write("by-cal", CAL, MESSAGE, said("x"))
    return vector(
        "self-grant", "an owner grants itself another role; a reader can't, and does not leave by"
        " trying", log, void=("self-cal", "by-cal"), uncovered=("self-cal", "by-cal"),
        members={ADA: ["HOST", "OWNER"], CAL: ["READER"]},
    )  # fmt: skip


def _role_table() -> dict[str, object]:
    log = begin(ADA)
    last = "genesis"
    for key, role in ((BOB, WRITER), (CAL, READER), (HAL, HOST)):
        log.grant(f"grant-{key.name}", ADA, key, role, parents=[last])
        last = f"grant-{key.name}"
    void = []
    for kind, name, keys in (
        (TOOLS, "tools", (ADA, BOB)), (CANCEL, "cancel", (ADA, BOB)), (7, "generation", (HAL,)),
        (DOCUMENT, "document", (ADA, BOB)), (JOIN, "join", (ADA, BOB, HAL)),
    ):  # fmt: skip
        for key in (ADA, BOB, CAL, HAL):
            log.write(f"{name}-{key.name}", key, kind, b"")
            void += [] if key in keys else [f"{name}-{key.name}"]
    for key in (ADA, BOB, CAL, HAL):
        log.write(f"request-{key.name}", key, REQUEST, request(HAL), parents=["genesis"])
        log.grant(f"member-{key.name}", key, EVE, READER, parents=[last], epoch=2)
    void += ["request-cal", "request-hal", "member-bob", "member-cal", "member-hal"]
    uncovered = tuple(n for n in log.entries if n.endswith("-cal") and n != "grant-cal")
    return vector(
        "role-table", "every kind but seals, by each role", log,
        void=tuple(void), uncovered=uncovered,
        members={ADA: ["OWNER"], BOB: ["WRITER"], CAL: ["READER"], HAL: ["HOST"], EVE: ["READER"]},
    )  # fmt: skip


def _heads(
    name: str, comment: str, count: int, join: str, gathers: int | None = None
) -> dict[str, object]:
    """Write grants side by side; bob, cal or hal may join the earliest."""
    log = begin(ADA)
    log.grant("grant-bob", ADA, BOB, WRITER)
    log.grant("grant-hal", ADA, HAL, HOST, parents=["grant-bob"])
    for number in range(count - 1):
        log.grant(f"g-{number}", ADA, BOB, WRITER, epoch=10 + number)
    order = lambda n: (log.entries[n].header.lamport, log.entries[n].id)  # noqa: E731
    heads = sorted([f"g-{i}" for i in range(count - 1)] + ["grant-hal"], key=order)
    first = heads[: len(heads) - 63] if len(heads) > 64 else []
    void: tuple[str, ...] = ()
    if join:
        key = {"ada": ADA, "bob": BOB, "hal": HAL}[join]
        behind = first if gathers is None else heads[:gathers]
        log.write("join", key, JOIN, b"", parents=behind, track=MEMBERSHIP, epoch=99)
        if join != "bob" and gathers is None:
            heads, first = [*heads[len(first) :], "join"], []
    named = sorted(heads, key=order)[-64:]
    found = vector(name, comment, log, void=void,
                   members={ADA: ["OWNER"], BOB: ["WRITER"], HAL: ["HOST"]})  # fmt: skip
    by_id = lambda n: log.entries[n].id  # noqa: E731
    return found | {
        "membership_heads": sorted(named, key=by_id),
        "heads_to_join": sorted(first, key=by_id),
        "requirements": ["ORD-15"],
    }


def _heads_few() -> dict[str, object]:
    return _heads("heads-64", "64 heads are all named", 64, "")


def _heads_many() -> dict[str, object]:
    return _heads("heads-67", "of 67 heads the earliest four are to be joined first", 67, "")


def _heads_host() -> dict[str, object]:
    return _heads("heads-joined", "a JOIN of a host stands for those it gathers", 66, "hal")


def _heads_owner() -> dict[str, object]:
    return _heads("heads-joined-owner", "and one of an owner", 66, "ada")


def _heads_writer() -> dict[str, object]:
    return _heads("heads-joined-writer", "one of a writer stands for nothing", 66, "bob")


def _heads_one() -> dict[str, object]:
    return _heads("heads-joined-one", "a JOIN of one head stands for nothing", 66, "hal", 1)


def _heads_enough() -> dict[str, object]:
    return _heads("heads-64-join", "of 64 heads none is replaced by a JOIN", 64, "hal", 2)


def _heads_void() -> dict[str, object]:
    log = begin()
    log.grant("grant-bob", ADA, BOB, WRITER)
    log.grant("by-bob", BOB, EVE, WRITER, parents=["grant-bob"])
    log.grant("grant-cal", BEA, CAL, WRITER)
    log.revoke("resign", CAL, CAL, [], parents=["grant-cal"])
    log.grant("stray-void", BOB, EVE, WRITER, parents=["grant-bob"], epoch=3)
    log.grant("follows-void", ADA, DAN, READER, parents=["by-bob"], epoch=2)
    log.write("join", ADA, JOIN, b"", parents=["follows-void", "resign"], track=MEMBERSHIP)
    found = vector(
        "heads-void",
        "void entries are no heads, nor are JOINs of few; a resignation that counts"
        " is one; what follows a void entry reaches beyond it",
        log, void=("by-bob", "stray-void", "resign"),
        members={**OWNERS, BOB: ["WRITER"], DAN: ["READER"]},
    )  # fmt: skip
    heads = sorted(("follows-void", "resign"), key=lambda n: log.entries[n].id)
    return found | {"membership_heads": heads, "heads_to_join": [], "requirements": ["ORD-15"]}


CASES: tuple[Callable[[], dict[str, object]], ...] = (
    _branches, _branches_meet, _one_meets_both, _one_meets_both_turned,
    _roots, _both_and_both, _sides, _shorter, _longer,
    _none_then_some, _other_seq, _other_epoch, _granted_owner, _least_depth, _lesser_grant,
    _least_grant, _rank_of_no_role, _resigned_owner, _self_grant, _role_table,
    _heads_few, _heads_many, _heads_host, _heads_owner, _heads_writer, _heads_void,
    _heads_one, _heads_enough,
)  # fmt: skip
