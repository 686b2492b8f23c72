"""Kill a process while it opens a store for the first time, and open the store again.

    python -m tests.crash.first_open --kills 2000

Forked children are killed at random times, or at a limit on the size of their
files. The remaining files must open, first for reading, then for writing. Not for
use inside a process with threads.
"""

import argparse
import asyncio
import os
import random
import resource
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from replica.errors import StoreError
from replica.io.store.readonly import open_read_only
from replica.io.store.store import Store
from tests.support.writers import Writer

SPAN_S = 0.08
"""Children are killed within this time; a first open takes about a quarter of it."""
FILE_BYTES_MAX = 49_152
FILE_BYTES_STEP = 331
"""Largest file of a first open; the step reaches no border between pages twice."""
FINISHED = 0


@dataclass(slots=True)
class Outcome:
    """The outcome of a number of first opens."""

    kills: int = 0
    cut_short: int = 0
    """Children killed before the store was open."""
    hot: int = 0
    """Stores with an incomplete transaction."""
    stuck: int = 0
    """Stores that did not open any more."""

    def __str__(self) -> str:
        return f"{self.kills} kills, {self.cut_short} cut short, {self.hot} hot, {self.stuck} stuck"


async def _open(path: Path) -> None:
    async with await Store.open(path):
        pass


async def _use(path: Path, *, is_there: bool) -> None:
    """Read the store, then write to it. Raises StoreError if the store is stuck."""
    if is_there:
        async with open_read_only(path) as store:
            assert await store.conversations() == []
    genesis = Writer(1).genesis()
    async with await Store.open(path) as store:
        await store.append([genesis])
        assert (await store.load(genesis.conversation)).entries == [genesis]


def _end_after(delay_s: float) -> None:
    # The signal has no handler, so the kernel ends the process at once.
    signal.setitimer(signal.ITIMER_REAL, delay_s)


def _end_at_size(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)


def _is_killed(path: Path, arm: Callable[[], None]) -> bool:
    """Open the store in a child that `arm` limits; say whether it was killed before the end."""
    child = os.fork()
    if child == 0:
        arm()
        asyncio.run(_open(path))
        os._exit(FINISHED)
    _, status = os.waitpid(child, 0)
    return status != FINISHED


def _judge(arms: Iterable[Callable[[], None]]) -> Outcome:
    outcome = Outcome()
    for arm in arms:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "log.db"
            outcome.kills += 1
            outcome.cut_short += _is_killed(path, arm)
            outcome.hot += path.with_name("log.db-journal").exists()
            try:
                asyncio.run(_use(path, is_there=path.exists()))
            except StoreError as error:
                outcome.stuck += 1
                print(f"stuck: {error.detail} [{error.reason}]", file=sys.stderr)
    return outcome


def kill_at_random(kills: int, seed: int) -> Outcome:
    """Kill first opens at random times."""
    chance = random.Random(seed)
    delays = (chance.uniform(0.0005, SPAN_S) for _ in range(kills))
    return _judge((lambda delay_s=delay_s: _end_after(delay_s)) for delay_s in delays)


def kill_at_sizes(step: int) -> Outcome:
    """Kill a first open at every size that one of its files reaches, in small steps."""
    sizes = range(0, FILE_BYTES_MAX, step)
    return _judge((lambda size=size: _end_at_size(size)) for size in sizes)


def main() -> int:
    """Print the outcome; return 1 if a store is stuck."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.first_open", description=__doc__)
    parser.add_argument("--kills", type=int, default=2000, help="at random times")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--sizes", action="store_true", help="at file sizes instead")
    parser.add_argument("--step", type=int, default=FILE_BYTES_STEP, help="between the sizes")
    given = parser.parse_args()
    outcome = kill_at_sizes(given.step) if given.sizes else kill_at_random(given.kills, given.seed)
    print(outcome)
    return 1 if outcome.stuck else 0


if __name__ == "__main__":
    sys.exit(main())
