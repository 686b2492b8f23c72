"""A daemon's process: its standard error, and its end together with its supervisor."""

import io
import os
import signal
import sys
import threading
from contextlib import suppress

STOP_AT_EOF = "ANTIPHON_STOP_AT_EOF"
"""Environment variable set by a supervisor that holds the only other end of stdin."""
TYPED_AS = "ANTIPHON_TYPED_AS"
"""Environment variable set by a command that a daemon's process replaces: how it was typed."""


class Stderr(io.TextIOBase):
    """Standard error that loses lines a full disk refuses, instead of raising."""

    def write(self, text: str) -> int:
        """Write the text if possible; return its length."""
        with suppress(OSError):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush if possible."""
        with suppress(OSError):
            sys.stderr.flush()


def stop_signals() -> list[signal.Signals]:
    """Return the signals that stop a daemon: that of a closed terminal too, but not under nohup."""
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    return numbers


def typed_command(own: str) -> str:
    """Return the command that the user typed, `own` if it was that of this program itself."""
    return os.environ.pop(TYPED_AS, own)  # processes that this one starts were not typed


def stop_with_supervisor() -> None:
    """Treat the end of stdin as SIGTERM if STOP_AT_EOF is set: a killed supervisor sends none."""
    if os.environ.get(STOP_AT_EOF):
        threading.Thread(target=_wait_for_end, name="end of stdin", daemon=True).start()


def _wait_for_end() -> None:
    with suppress(OSError):
        while os.read(0, 1024):
            pass
    os.kill(os.getpid(), signal.SIGTERM)
