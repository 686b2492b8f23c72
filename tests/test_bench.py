"""The plots of the benchmarks can be drawn from the results that are kept."""

import json
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from bench import abuse, abuse_hub, abuse_scale
from bench.__main__ import BENCHES, FOLDER
from bench.plots import draw

RESULTS = json.loads((FOLDER / "results.json").read_text())


@pytest.mark.parametrize("name", RESULTS)
def test_the_plots_of_the_results_can_be_drawn(name: str, tmp_path: Path) -> None:
    assert name in BENCHES
    assert all(path.stat().st_size > 1_000 for path in draw(name, RESULTS[name], tmp_path))


def test_the_attacks_can_be_measured() -> None:
    rows = abuse.measure((100,), [])
    assert len(rows) == len(abuse.ATTACKS)
    missed = [goal.name for goal in abuse.goals(rows) if not goal.ok and "ms of" not in goal.name]
    assert missed == [], "bounds on memory and growth; times depend on the machine"


def test_the_figures_of_scale_can_be_measured() -> None:
    names = ["watched_append_ms", "idle_links_ratio", "queue_fold_s", "lanes_opened"]
    goals = abuse_scale.run(abuse_scale.Size(0.01), names)
    assert len(goals) == len(names)
    assert goals[-1].ok, "the lanes are whole; times depend on the machine"


def attacked() -> list[abuse_hub.Row]:
    return list(abuse_hub.run(["entries that are refused"], (100,), 0.3))


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
