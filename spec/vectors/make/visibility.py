"""visibility.json: the visible entries, folded from the membership track."""

from spec.vectors.make.build import (
    HOST,
    JOIN,
    MEMBER,
    MESSAGE,
    OWNER,
    READER,
    WRITER,
    Book,
    Key,
    grant,
    said,
)

ADA, BEA, BOB, CAL, DAN, EVE, HAL = (
    Key(n) for n in ("ada", "bea", "bob", "cal", "dan", "eve", "hal")
)


def _book(*owners: Key) -> Book:
    return Book(owners or (ADA, BEA))


def _vector(
    name: str,
    comment: str,
    book: Book,
    *,
    void: tuple[str, ...] = (),
    uncovered: tuple[str, ...] = (),
    members: dict[Key, list[str]],
) -> dict[str, object]:
    """Return one vector: all entries of the book; those not void are visible."""
    covered = [n for n in book.entries if n not in uncovered]
    return {
        "name": name,
        "comment": comment,
        **book.as_json(),
        "visible": [n for n in book.entries if n not in void],
        "void": list(void),
        "covered": covered,
        "members": {key.name: sorted(roles) for key, roles in members.items()},
        "digest": book.digest(covered).hex(),
    }


def _roles() -> dict[str, object]:
    book = _book(ADA)
    last = "genesis"
    for key, role in ((BOB, WRITER), (CAL, READER), (HAL, HOST), (DAN, 9)):
        book.grant(f"grant-{key.name}", ADA, key, role, parents=[last])
        last = f"grant-{key.name}"
    for key in (ADA, BOB, CAL, HAL, DAN):
        book.write(f"message-{key.name}", key, MESSAGE, said("x"))
    book.write("member-bob", BOB, MEMBER, grant(EVE, WRITER), parents=[last])
    book.write("message-eve", EVE, MESSAGE, said("x"))
    book.write("join-cal", CAL, JOIN, b"", parents=["message-bob"])
    book.write("unknown-cal", CAL, 99, b"", parents=["message-bob"])
    void = ("message-cal", "message-hal", "message-dan", "member-bob", "message-eve")
    return _vector(
        "roles",
        "what each role may write; an unknown role is none, and a void grant gives none",
        book,
        void=void,
        uncovered=("message-dan", "message-eve"),
        members={ADA: ["OWNER"], BOB: ["WRITER"], CAL: ["READER"], HAL: ["HOST"]},
    )


def _before_grant() -> dict[str, object]:
    book = _book(ADA)
    book.write("early", BOB, MESSAGE, said("x"))
    book.grant("reader", ADA, BOB, READER)
    book.grant("writer", ADA, BOB, WRITER, parents=["reader"])
    return _vector(
        "before-grant",
        "roles add up, and hold for what was written before the grant",
        book,
        members={ADA: ["OWNER"], BOB: ["READER", "WRITER"]},
    )


def _cut() -> dict[str, object]:
    book = _book()
    book.grant("grant-bob", ADA, BOB, WRITER)
    for name in ("one", "two", "three"):
        book.write(name, BOB, MESSAGE, said(name))
    book.write("other-epoch", BOB, MESSAGE, said("x"), epoch=2)
    book.revoke("revoke-bob", ADA, BOB, ["two"], parents=["grant-bob"])
    return _vector(
        "cut",
        "the cut keeps `two` and what precedes it in its lane; lanes not listed are void",
        book,
        void=("three", "other-epoch"),
        uncovered=("three", "other-epoch"),
        members={ADA: ["OWNER"], BEA: ["OWNER"]},
    )


def _cut_many() -> dict[str, object]:
    book = _book()
    book.grant("grant-bob", ADA, BOB, WRITER)
    for name in ("one", "two", "three"):
        book.write(name, BOB, MESSAGE, said(name))
    book.write("epoch-one", BOB, MESSAGE, said("x"), epoch=2)
    book.write("epoch-two", BOB, MESSAGE, said("x"), epoch=2)
    book.revoke("by-ada", ADA, BOB, ["three", "epoch-one"], parents=["grant-bob"])
    book.revoke("by-bea", BEA, BOB, ["two", "epoch-two"], parents=["grant-bob"])
    return _vector(
        "cuts-several",
        "two revocations: an entry must satisfy both; what a valid revocation lists is covered",
        book,
        void=("three", "epoch-two"),
        members={ADA: ["OWNER"], BEA: ["OWNER"]},
    )


def _cut_followed() -> dict[str, object]:
    book = _book()
    book.grant("grant-bob", ADA, BOB, WRITER)
    book.write("said", BOB, MESSAGE, said("x"))
    book.write("reply", ADA, MESSAGE, said("y"), parents=["said"])
    book.revoke("revoke-bob", ADA, BOB, [], parents=["grant-bob"])
    return _vector(
        "cut-followed",
        "void, yet covered: a valid entry follows it",
        book,
        void=("said",),
        members={ADA: ["OWNER"], BEA: ["OWNER"]},
    )


def _senior() -> dict[str, object]:
    book = _book()
    book.write("junior", BEA, MESSAGE, said("x"))
    book.write("senior", ADA, MESSAGE, said("x"))
    book.revoke("upwards", BEA, ADA, [])
    return _vector(
        "senior",
        "a junior owner cannot revoke a senior one; the attempt is visible and does nothing",
        book,
        members={ADA: ["OWNER"], BEA: ["OWNER"]},
    )


def _cycle() -> dict[str, object]:
    book = _book()
    book.grant("grant-bob", BEA, BOB, WRITER)
    book.write("words", BOB, MESSAGE, said("x"))
    book.revoke("bea-revokes-ada", BEA, ADA, [], parents=["grant-bob"])
    book.revoke("ada-revokes-bea", ADA, BEA, [])
    return _vector(
        "cycle",
        "each revokes the other, the junior with the smaller lamport too: seniority alone decides;"
        " what the revoked owner granted is gone with it",
        book,
        void=("grant-bob", "words", "bea-revokes-ada"),
        uncovered=("grant-bob", "words", "bea-revokes-ada"),
        members={ADA: ["OWNER"]},
    )


def _depth() -> dict[str, object]:
    book = _book(ADA)
    book.grant("owner-cal", ADA, CAL, OWNER)
    book.grant("owner-dan", ADA, DAN, OWNER, parents=["owner-cal"])
    book.grant("owner-eve", CAL, EVE, OWNER, parents=["owner-dan"])
    book.grant("writer-bob", ADA, BOB, WRITER, parents=["owner-eve"])
    book.revoke("peer", CAL, DAN, [], parents=["writer-bob"])
    book.revoke("peer-writer", CAL, BOB, [], parents=["peer"])
    book.revoke("junior", DAN, EVE, [], parents=["peer-writer"])
    return _vector(
        "depth",
        "owners rank by depth of grant; equals cannot revoke each other, nor what an equal's"
        " senior granted; any strictly senior owner can",
        book,
        members={ADA: ["OWNER"], CAL: ["OWNER"], DAN: ["OWNER"], BOB: ["WRITER"]},
    )


def _self() -> dict[str, object]:
    book = _book()
    book.grant("grant-bob", ADA, BOB, WRITER)
    book.write("one", BOB, MESSAGE, said("x"))
    book.write("two", BOB, MESSAGE, said("x"))
    book.revoke("resign", BOB, BOB, ["one"], parents=["grant-bob"])
    return _vector(
        "self",
        "a key may revoke itself, whatever its role; the resignation is covered though its own"
        " cut leaves it out",
        book,
        void=("two", "resign"),
        uncovered=("two",),
        members={ADA: ["OWNER"], BEA: ["OWNER"]},
    )


def _self_late() -> dict[str, object]:
    book = _book()
    book.grant("grant-bob", ADA, BOB, WRITER)
    book.write("one", BOB, MESSAGE, said("x"))
    book.write("two", BOB, MESSAGE, said("x"))
    book.revoke("by-ada", ADA, BOB, ["two"], parents=["grant-bob"])
    book.revoke("resign", BOB, BOB, ["one"], parents=["grant-bob"])
    return _vector(
        "self-late",
        "a resignation behind a senior's cut counts no more",
        book,
        void=("resign",),
        uncovered=("resign",),
        members={ADA: ["OWNER"], BEA: ["OWNER"]},
    )


def _again() -> dict[str, object]:
    book = _book()
    book.grant("grant-bob", ADA, BOB, WRITER)
    book.write("one", BOB, MESSAGE, said("x"))
    book.revoke("revoke-bob", ADA, BOB, ["one"], parents=["grant-bob"])
    book.grant("grant-again", ADA, BOB, WRITER, parents=["revoke-bob"])
    book.write("two", BOB, MESSAGE, said("x"))
    return _vector(
        "again",
        "a revoked key is never granted again",
        book,
        void=("two",),
        uncovered=("two",),
        members={ADA: ["OWNER"], BEA: ["OWNER"]},
    )


def _minted() -> dict[str, object]:
    book = _book()
    book.grant("grant-eve", BEA, EVE, WRITER)
    book.write("spam", EVE, MESSAGE, said("x"))
    book.write("followed", EVE, MESSAGE, said("x"), epoch=2)
    book.write("reply", ADA, MESSAGE, said("y"), parents=["followed"])
    book.revoke("revoke-bea", ADA, BEA, [])
    return _vector(
        "minted",
        "the grant behind the cut is void, so is what its key wrote; it is covered as far as a"
        " valid entry follows it, and admitted without the grant",
        book,
        void=("grant-eve", "spam", "followed"),
        uncovered=("grant-eve", "spam"),
        members={ADA: ["OWNER"]},
    )


def _fork() -> dict[str, object]:
    book = _book(ADA)
    book.write("one", ADA, MESSAGE, said("x"))
    book.write("two", ADA, MESSAGE, said("x"), parents=["one"])
    book.write("twin", ADA, MESSAGE, said("y"), parents=["one"], prev="one")
    return _vector(
        "equivocation",
        "both entries at the forked position are visible, and both are heads",
        book,
        members={ADA: ["OWNER"]},
    )


def _fork_cut() -> dict[str, object]:
    book = _book()
    book.grant("grant-bob", ADA, BOB, WRITER)
    book.write("one", BOB, MESSAGE, said("x"))
    book.write("two", BOB, MESSAGE, said("x"))
    book.write("twin", BOB, MESSAGE, said("y"), prev="one")
    book.revoke("revoke-bob", ADA, BOB, ["twin"], parents=["grant-bob"])
    return _vector(
        "equivocation-cut",
        "a cut names the valid one of two histories",
        book,
        void=("two",),
        uncovered=("two",),
        members={ADA: ["OWNER"], BEA: ["OWNER"]},
    )


def _foreign_cut() -> dict[str, object]:
    book = _book()
    book.grant("grant-bob", ADA, BOB, WRITER)
    book.write("one", BOB, MESSAGE, said("x"))
    book.write("own", ADA, MESSAGE, said("x"))
    book.revoke("revoke-bob", ADA, BOB, ["own"], parents=["grant-bob"])
    return _vector(
        "cut-foreign",
        "a cut on another key's entry keeps nothing",
        book,
        void=("one",),
        uncovered=("one",),
        members={ADA: ["OWNER"], BEA: ["OWNER"]},
    )


def _host() -> dict[str, object]:
    book = _book(ADA)
    book.grant("grant-hal", ADA, HAL, HOST)
    book.write("message-ada", ADA, MESSAGE, said("x"))
    book.write("generation-ada", ADA, 7, b"", parents=["message-ada"])
    book.write("generation-hal", HAL, 7, b"", parents=["message-ada"])
    return _vector(
        "host",
        "only a host writes generations, not even an owner does",
        book,
        void=("generation-ada",),
        members={ADA: ["OWNER"], HAL: ["HOST"]},
    )


def _critical() -> dict[str, object]:
    book = _book(ADA)
    last = "genesis"
    for key, role in ((BOB, WRITER), (CAL, READER), (HAL, HOST)):
        book.grant(f"grant-{key.name}", ADA, key, role, parents=[last])
        last = f"grant-{key.name}"
    for key in (ADA, BOB, CAL, HAL):
        book.write(f"critical-{key.name}", key, 99, b"", critical=True)
        book.write(f"unknown-{key.name}", key, 99, b"")
    return _vector(
        "critical",
        "an unknown kind takes any role, a critical one an owner",
        book,
        void=("critical-bob", "critical-cal", "critical-hal"),
        members={ADA: ["OWNER"], BOB: ["WRITER"], CAL: ["READER"], HAL: ["HOST"]},
    )


def build() -> dict[str, object]:
    """Return the file."""
    cases = (
        _roles, _host, _before_grant, _cut, _cut_many, _cut_followed, _senior, _cycle, _depth,
        _self, _self_late, _again, _minted, _fork, _fork_cut, _foreign_cut, _critical,
    )  # fmt: skip
    return {
        "file": "visibility",
        "spec": "spec/03-order §2",
        "comment": "Admit all entries, in any order that admission takes. `members` are the keys"
        " with a role that are not revoked; `covered` is what the digest covers.",
        "vectors": [case() for case in cases],
    }
