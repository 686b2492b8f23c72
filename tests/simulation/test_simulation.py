"""Schedules of the real core, each with its own mix of faults; `make sim` runs ten thousand."""

import os
import subprocess
import sys
from functools import cache

import pytest

from tests.simulation.__main__ import report
from tests.simulation.planted import shapes
from tests.simulation.world import Outcome, run_seed

pytestmark = pytest.mark.xdist_group("schedules")  # one process plays them, once for all tests

SEEDS, CHUNK, SYNCING = 100, 25, 14
"""Planted bugs are found with seeds and mixes of their own (test_planted_bugs.py)."""


@cache
def played(seed: int) -> Outcome:
    return run_seed(seed)


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_every_promise_holds_under_every_schedule(first: int):
    outcomes = [played(seed) for seed in range(first, first + CHUNK)]
    problems = [report(outcome) for outcome in outcomes if outcome.problem]
    assert not problems, "\n".join(problems)


def test_a_replica_in_sync_as_of_a_call_holds_what_the_hub_held_then():
    outcomes = [run_seed(seed, shapes.syncing) for seed in range(SYNCING)]
    problems = [report(outcome) for outcome in outcomes if outcome.problem]
    assert not problems, "\n".join(problems)
    assert sum(outcome.comparisons for outcome in outcomes) > 20 * SYNCING


@pytest.mark.parametrize("seed", range(0, SEEDS, CHUNK))
def test_a_seed_gives_the_same_trace_twice(seed: int):
    assert run_seed(seed).trace_hash == played(seed).trace_hash


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
    """Some of the seeds diverge, lose the hub, repair gaps and stream drafts."""
    unseen = {"a fork", "Ids", "Close", "Draft", "ENTRIES_MISSING", "CONVERSATION_NOT_FOUND"}
    for seed in range(SEEDS):
        outcome = played(seed)
        unseen -= {name for name, count in outcome.seen.items() if count}
        unseen -= {"a fork"} if outcome.forks else set()
        if not unseen:
            return
    raise AssertionError(f"not seen in {SEEDS} seeds: {sorted(unseen)}")
