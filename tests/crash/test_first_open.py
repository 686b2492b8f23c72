"""A kill while a store is first opened leaves a store that opens."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
KILLS = 40
"""Kills at random times here; `make faults` makes more."""
STEP = 997
"""Bytes between the sizes here: four in each page of a file, in other places of each page."""


def outcome_of(*arguments: str) -> str:
    """Run the kills in a separate process, since ours has threads and children are forked."""
    command = [sys.executable, "-m", "tests.crash.first_open", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_kill_at_any_time_leaves_a_store_that_opens() -> None:
    assert outcome_of("--kills", str(KILLS)).startswith(f"{KILLS} kills,")


def test_a_kill_at_any_size_of_a_file_leaves_a_store_that_opens() -> None:
    words = outcome_of("--sizes", "--step", str(STEP)).split()
    cut_short, hot = (int(words[words.index(word) - 1]) for word in ("cut", "hot,"))
    assert cut_short > 40
    assert hot > 2  # the kills that matter were among them
