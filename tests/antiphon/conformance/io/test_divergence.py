"""Our hub detects and repairs every recorded divergence."""

from pathlib import Path

from antiphon.conformance.io.divergence import CASES, Player, seeded
from antiphon.conformance.io.running import outcome_of, outcomes_of
from syncd.io.config import HubConfig
from syncd.io.server import start


async def test_our_hub_passes_every_divergence(tmp_path: Path) -> None:
    hub = await start(HubConfig(data_dir=tmp_path, listen="127.0.0.1:0"))
    player = Player(hub.address)
    outcomes = [o async for o in outcomes_of(CASES, player)]
    assert [(o.case.name, o.problems) for o in outcomes if o.problems] == []
    assert len(outcomes) >= 11
    # The hub holds them now: another seed gives the same divergences with other ids.
    for cases, fails in ((CASES, True), (seeded(7), False)):
        (lanes,) = (one for one in cases if one.name == "divergence/lane-fork")
        assert bool((await outcome_of(lanes, player)).problems) is fails
    await hub.stop()
