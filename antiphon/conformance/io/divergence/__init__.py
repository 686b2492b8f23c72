"""Recorded divergences, played against a hub."""

from antiphon.conformance.cases import Check, Table
from antiphon.conformance.io.divergence.player import Player, checks_of, recorded_divergences

CASES: Table[Player] = Table()
for _check in checks_of(recorded_divergences()):
    CASES.add(_check)


def seeded(seed: int) -> list[Check[Player]]:
    """Return the same cases with other keys and ids."""
    return list(checks_of(recorded_divergences(seed)))


__all__ = ["CASES", "Player", "seeded"]
