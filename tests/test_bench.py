"""The plots of the benchmarks can be drawn from the results that are kept."""

import gc
import json
import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from bench import abuse, abuse_folds, abuse_hub, abuse_scale
from bench.__main__ import BENCHES, FOLDER
from bench.plots import draw
from bench.result import Goal

RESULTS = json.loads((FOLDER / "results.json").read_text())


@pytest.mark.xdist_group("plots")  # one process imports matplotlib
@pytest.mark.parametrize("name", RESULTS)
def test_the_plots_of_the_results_can_be_drawn(name: str, tmp_path: Path) -> None:
    assert name in BENCHES
    assert all(path.stat().st_size > 1_000 for path in draw(name, RESULTS[name], tmp_path))


MEASURED = 3
"""Times an attack is measured until its bars hold: other work on the machine makes some times
longer, while one that grows with the log, which is a hundred times as long, always does."""
TIMED = ("empty_entries", "refused_entries", "many_lanes", "queued_turns", "many_listings")
"""Attacks without a bar on memory or growth; at 10^4 they are left to `make bench`."""
BOUNDED = [one.__name__ for one in abuse.ATTACKS if one.__name__ not in TIMED]


SLACK = 2.0
"""Room of the growth of a time here: beside other processes, which fill the caches, what reads
10,000 entries took 1.8 times as long for each as what reads 100. Alone it takes at most 1.3."""


def bounds(rows: list[abuse.Row]) -> list[Goal]:
    """Return the bars on memory and growth: times depend on the machine."""
    found = [goal for goal in abuse.goals(rows) if "ms of" not in goal.name]
    return [replace(g, bar=SLACK * g.bar) if "growth" in g.name else g for g in found]


def test_the_attacks_can_be_measured() -> None:
    rows = abuse.measure((100,), [])
    assert len(rows) == len(abuse.ATTACKS)
    missed = [goal.name for goal in bounds(rows) if not goal.ok]
    assert missed == [], "bounds on memory and growth; times depend on the machine"
    unbounded = [
        one.__name__ for one, row in zip(abuse.ATTACKS, rows, strict=True) if not bounds([row])
    ]
    assert unbounded == list(TIMED), "all others are measured at 10^4 too"


SIZES = {abuse.revocations.__name__: (500,)}
"""Sizes of attacks with a bar on memory alone, where fewer than 10,000 would show a product of
revocations and entries: it held more than 8 bytes for each byte sent."""


@pytest.mark.xdist_group("attacks")  # one process writes the log that most of them share
@pytest.mark.parametrize("attack", BOUNDED)
def test_an_attack_costs_no_more_in_a_log_of_10_000_entries(attack: str) -> None:
    sizes = SIZES.get(attack, abuse.SIZES)
    for _ in range(MEASURED):
        missed = [goal for goal in bounds(abuse.measure(sizes, [attack])) if not goal.ok]
        if not missed:
            break
    assert missed == []


FOLDED = {abuse_folds.revoked_host: 1_000, abuse_folds.earlier_seal: 1_000}
"""The sizes of folds, where it is not 2,500: a turn has three entries."""


@pytest.fixture
def frozen_again() -> Iterator[None]:
    """Spare passes of the collector the modules again, which those of a hub unfreeze at their end.

    The next attack begins with such a pass, of half a second where it looks at all modules.
    """
    yield
    gc.freeze()


@pytest.mark.usefixtures("frozen_again")
@pytest.mark.parametrize("attack", abuse_folds.ATTACKS, ids=lambda attack: attack.__name__)
def test_a_fold_of_thousands_of_entries_pauses_on_its_way(
    attack: Callable[[int], abuse_folds.Scene],
) -> None:
    for _ in range(MEASURED):
        (row,) = abuse_folds.measure((FOLDED.get(attack, 2_500),), [attack.__name__], rounds=1)
        if row.hold_ms <= row.cpu_ms / 2:
            break
    assert row.hold_ms <= row.cpu_ms / 2


def test_the_figures_of_scale_can_be_measured() -> None:
    names = ["watched_append_ms", "idle_links_ratio", "queue_fold_s", "lanes_opened"]
    goals = abuse_scale.run(abuse_scale.Size(0.01), names)
    assert len(goals) == len(names)
    assert goals[-1].ok, "the lanes are whole; times depend on the machine"


def attacked() -> list[abuse_hub.Row]:
    return list(abuse_hub.run(["entries that are refused"], (100,), 0.1, probes=3))


def test_a_hub_process_can_be_attacked() -> None:
    """The short form: one attack on a process; it takes some seconds, since some are started.

    The benchmark forks, which a process whose threads use gRPC, as this one's do, must not.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as fresh:
        (row,) = fresh.submit(attacked).result()
    assert row.answers["FIELD_INVALID"] >= 2_048
    assert row.flood_bytes > 0
    assert 0 < row.hold_ms < 5 * abuse_hub.HOLD_MS, "one frame held the loop 250 ms once"
    memory = [goal for goal in abuse_hub.goals([row]) if "memory" in goal.name]
    assert [goal.ok for goal in memory] == [True]
