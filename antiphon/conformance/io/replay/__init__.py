"""Recorded answers, which a host replays."""

from antiphon.conformance.cases import Table
from antiphon.conformance.io.replay.replayer import FOLDER, Replayer, checks_of, recorded_replays

CASES: Table[Replayer] = Table()
for _check in checks_of(recorded_replays()):
    CASES.add(_check)

__all__ = ["CASES", "FOLDER", "Replayer", "checks_of", "recorded_replays"]
