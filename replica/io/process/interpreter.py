"""The command line of a further Python process."""

import sys


def python(*arguments: str) -> list[str]:
    """Return the command line that runs this interpreter with `arguments`.

    The working directory is not searched for modules: it may be a model's folder, whose files
    run nothing (DECISIONS D600).
    """
    return [sys.executable, "-P", *arguments]
