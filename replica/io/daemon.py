"""What a daemon's process needs around its loop: its log, and an end with its supervisor."""

import io
import os
import signal
import sys
import threading
from contextlib import suppress
from typing import TextIO, cast

import structlog

STOP_AT_EOF = "ANTIPHON_STOP_AT_EOF"
"""Set by a supervisor that alone holds the other end of stdin."""


class Stderr(io.TextIOBase):
    """Standard error, on which no answer depends: lines a full disk does not take are lost."""

    def write(self, text: str) -> int:
        """Write what can be written."""
        with suppress(OSError):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        """Push it out as far as that goes."""
        with suppress(OSError):
            sys.stderr.flush()


def log_to_stderr() -> None:
    """Log to stderr, and nothing that people wrote."""
    # The default traceback shows local variables: what people wrote would be in the log.
    show = structlog.dev.ConsoleRenderer(
        colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
    )
    structlog.configure(
        processors=[*structlog.get_config()["processors"][:-1], show],
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, Stderr())),
    )


def stop_with_supervisor() -> None:
    """Take the end of stdin for SIGTERM where asked to: who is killed can't send one."""
    if os.environ.get(STOP_AT_EOF):
        threading.Thread(target=_wait_for_end, name="end of stdin", daemon=True).start()


def _wait_for_end() -> None:
    with suppress(OSError):
        while os.read(0, 1024):
            pass
    os.kill(os.getpid(), signal.SIGTERM)
