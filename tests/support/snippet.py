"""Runs the lines that are its first argument, as `python -c` does: for `Forks`."""

import sys
import warnings

if __name__ == "__main__":
    # Python warns since 3.12 of a fork beside threads, which the library has.
    warnings.filterwarnings("ignore", "This process", DeprecationWarning)
    lines, sys.argv = sys.argv[1], sys.argv[1:]
    exec(compile(lines, "<snippet>", "exec"), {"__name__": "__main__"})
