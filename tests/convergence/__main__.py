"""Command line: check many random logs."""

import argparse
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from tests.convergence.check import STEPS, check


def main() -> int:
    """Check random logs; return 1 if one of them has two views."""
    parser = argparse.ArgumentParser(prog="python -m tests.convergence")
    parser.add_argument("--logs", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + arguments.logs)
    seen: Counter[str] = Counter()
    failed = 0
    with ProcessPoolExecutor(arguments.jobs) as pool:
        for found in pool.map(_checked, seeds, [arguments.steps] * len(seeds), chunksize=50):
            if isinstance(found, str):
                failed += 1
                print(found)
            else:
                seen += found
    print(f"{len(seeds)} logs, {failed} failed:", ", ".join(f"{k} {n}" for k, n in seen.items()))
    return int(failed > 0)


def _checked(seed: int, steps: int) -> Counter[str] | str:
    try:
        return check(seed, steps)
    except AssertionError as error:
        return str(error).splitlines()[0]


if __name__ == "__main__":
    sys.exit(main())
