"""The keys of visibility.json, and the form of its vectors."""

from spec.vectors.make.build import Key, NamedLog

ADA, BEA, BOB, CAL, DAN, EVE, HAL = (
    Key(n) for n in ("ada", "bea", "bob", "cal", "dan", "eve", "hal")
)


def begin(*owners: Key) -> NamedLog:
    """Begin a log; without arguments ada and bea own it."""
    return NamedLog(owners or (ADA, BEA))


def vector(
    name: str,
    comment: str,
    log: NamedLog,
    *,
    void: tuple[str, ...] = (),
    uncovered: tuple[str, ...] = (),
    members: dict[Key, list[str]],
) -> dict[str, object]:
    """Return one vector: all entries of the log; those not void are visible."""
    covered = [n for n in log.entries if n not in uncovered]
    return {
        "name": name,
        "comment": comment,
        **log.as_json(),
        "visible": [n for n in log.entries if n not in void],
        "void": list(void),
        "covered": covered,
        "members": {key.name: sorted(roles) for key, roles in members.items()},
        "digest": log.digest(covered).hex(),
    }
