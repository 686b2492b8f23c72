"""Run a module in a forked process as if it were this one: for shells, which start no forks.

    FORKS=7 python -S tests/support/forked_here.py antiphon list

The variable has the descriptor that `Forks.lend` returned. The process has these streams,
variables, folder and exit code; it gets SIGTERM, and is killed where this one is.
"""

import fcntl
import os
import signal
import socket
import sys
from pathlib import Path

from tests.support.forked import Forks


def main() -> int:
    """Start it and wait for its end; return the exit code that a shell would see."""
    forks = Forks.lent(socket.socket(fileno=int(os.environ["FORKS"])))
    with Path(__file__).open() as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)  # one request at a time
        process = forks.start(sys.argv[1:], os.environ, (0, 1, 2))
    signal.signal(signal.SIGTERM, lambda *_: process.send_signal(signal.SIGTERM))
    code = process.wait()
    return 128 - code if code < 0 else code


if __name__ == "__main__":
    sys.exit(main())
