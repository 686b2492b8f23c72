"""Command line: run the mutants, and list those that survive.

`python -m tests.mutation` runs all of them; `--only TEXT` those whose key has the text.
"""

import argparse
import sys
import time

from tests.mutation.catalogue import EQUIVALENT, KILLED_MIN, mutants
from tests.mutation.run import run


def main() -> int:
    """Run mutants; return 1 if too few are killed, or a reason for a survivor is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation")
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    chosen = [m for m in mutants() if arguments.only in m.key]
    began, survivors, seconds = time.monotonic(), [], 0.0
    for result in run(chosen, arguments.jobs):
        seconds += result.seconds
        if arguments.verbose:
            print(f"{result.seconds:5.2f} s  {result.mutant.key}  <- {result.killer}", flush=True)
        if result.killer is None:
            survivors.append(result.mutant.key)
        elif result.mutant.key in EQUIVALENT:
            print(f"killed, yet listed as equivalent: {result.mutant.key}")
    return _report(len(chosen), sorted(survivors), seconds, time.monotonic() - began)


def _report(count: int, survivors: list[str], seconds: float, elapsed: float) -> int:
    alive = [key for key in survivors if key not in EQUIVALENT]
    for key in survivors:
        print(
            f"equivalent  {key}: {EQUIVALENT[key]}" if key in EQUIVALENT else f"SURVIVES    {key}"
        )
    differ = count - len(survivors) + len(alive)
    killed = count - len(survivors)
    share = killed / max(1, differ)
    print(
        f"{count} mutants, {len(survivors) - len(alive)} equivalent; of {differ} that differ"
        f" {killed} killed ({share:.1%}); {elapsed:.0f} s, {seconds / max(1, count):.2f} s each"
    )
    return int(share < KILLED_MIN)


if __name__ == "__main__":
    sys.exit(main())
