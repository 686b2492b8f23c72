"""Schedules of the real core, each with its own mix of faults; `make sim` runs ten thousand."""

import os
import subprocess
import sys

import pytest

from tests.simulation.__main__ import report
from tests.simulation.planted import shapes
from tests.simulation.world import run_seed

SEEDS, CHUNK, SYNCING = 300, 50, 40
"""Each planted bug is found within as many (tests/simulation/planted)."""


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_every_promise_holds_under_every_schedule(first: int):
    outcomes = [run_seed(seed) for seed in range(first, first + CHUNK)]
    problems = [report(outcome) for outcome in outcomes if outcome.problem]
    assert not problems, "\n".join(problems)


def test_a_replica_in_sync_as_of_a_call_holds_what_the_hub_held_then():
    outcomes = [run_seed(seed, shapes.syncing) for seed in range(SYNCING)]
    problems = [report(outcome) for outcome in outcomes if outcome.problem]
    assert not problems, "\n".join(problems)
    assert sum(outcome.comparisons for outcome in outcomes) > 20 * SYNCING


@pytest.mark.parametrize("seed", range(0, SEEDS, CHUNK))
def test_a_seed_gives_the_same_trace_twice(seed: int):
    assert run_seed(seed).trace_hash == run_seed(seed).trace_hash


def test_a_seed_gives_the_same_trace_in_another_process():
    """No output of the core depends on the order of sets of bytes."""
    command = [sys.executable, "-m", "tests.simulation", "--seed", "7"]
    outputs = [
        subprocess.run(
            command,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1]


def test_the_mixes_reach_the_rare_paths():
    """Some of the first seeds diverge, lose the hub, repair gaps and stream drafts."""
    unseen = {"a fork", "Ids", "Close", "Draft", "ENTRIES_MISSING", "CONVERSATION_NOT_FOUND"}
    for seed in range(300):
        outcome = run_seed(seed)
        unseen -= {name for name, count in outcome.seen.items() if count}
        unseen -= {"a fork"} if outcome.forks else set()
        if not unseen:
            return
    raise AssertionError(f"not seen in 300 seeds: {sorted(unseen)}")
