"""Command line: replay one seed, or run many."""

import argparse
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.world import Outcome, run_seed


def main() -> int:
    """Run one seed or many; return 1 if a claim was violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seed", type=int, help="replay this one")
    parser.add_argument("--seeds", type=int, default=1000, help="number of seeds to run")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--verbose", action="store_true", help="print the trace")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        return _replay(arguments.seed, verbose=arguments.verbose)
    return _play(arguments.first, arguments.seeds, arguments.jobs)


def _replay(seed: int, *, verbose: bool) -> int:
    outcome = run_seed(seed, verbose=verbose)
    for line in outcome.lines:
        print(line)
    print(outcome.mix)
    print(f"trace {outcome.trace_hash}, {outcome.entries} entries, {outcome.frames} frames")
    print(outcome.problem or "no violation")
    return int(bool(outcome.problem))


def _play(first: int, count: int, jobs: int) -> int:
    began = time.perf_counter()
    seeds = range(first, first + count)
    seen: Counter[str] = Counter()
    failed, most, slowest, entries, forks = 0, 0, 0.0, 0, 0
    for outcome in _outcomes(seeds, jobs):
        most = max(most, outcome.exchanges_most)
        slowest = max(slowest, outcome.repair_s)
        entries += outcome.entries
        forks += bool(outcome.forks)
        seen.update(outcome.seen)
        if outcome.problem:
            failed += 1
            print(report(outcome))
    took = time.perf_counter() - began
    print(
        f"{count} seeds, {failed} failed, {1000 * took / count:.1f} ms each, {entries} entries, "
        f"{forks} seeds with forked lanes, most exchanges after the faults {most}, "
        f"slowest repair {slowest:.0f} s"
    )
    print(", ".join(f"{name} {number}" for name, number in seen.most_common()))
    return int(failed > 0)


def _outcomes(seeds: range, jobs: int) -> "map[Outcome]":
    if jobs == 1:
        return map(run_seed, seeds)
    return ProcessPoolExecutor(jobs).map(run_seed, seeds, chunksize=20)  # type: ignore[return-value]


def report(outcome: Outcome) -> str:
    """Return the violation and the command that replays it."""
    first_line = outcome.problem.splitlines()[0]
    return f"{first_line}\n  python -m tests.simulation --seed {outcome.seed} --verbose"


if __name__ == "__main__":
    sys.exit(main())
