"""Standard error of a daemon whose reader may have stopped.

A write to a pipe or terminal that nobody reads blocks the process at the first line beyond
the buffer. So a thread writes to these, and lines beyond a bound are lost and counted.
"""

import atexit
import os
import stat
import sys
import threading
from collections import deque
from collections.abc import Callable

from replica.io.process.daemon import Stderr

HELD_MAX = 1 << 20
"""Most characters of lines that wait for the reader."""
_LINE_WAIT_S = 0.05
"""How long a line waits to be written, if none is before it: lines keep their place among others
that the process writes, as on a terminal."""
_END_WAIT_S = 1.0
"""How long the end of the process waits for the reader."""


class BackgroundStderr(Stderr):
    """Standard error that never raises and never waits: what can't be written is lost."""

    def __init__(self, on_lost: Callable[[int], None]) -> None:
        """Report to `on_lost`, in a thread, how many lines were lost once the rest is written."""
        self._on_lost = on_lost
        self._lines: deque[str] = deque()
        self._held = 0
        self._lost = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def write(self, text: str) -> int:
        """Write the text if possible, or let the thread write it; return its length."""
        if not _may_block():
            return super().write(text)
        with self._changed:
            if self._held + len(text) > HELD_MAX:
                self._lost += 1
                return len(text)
            is_first = not self._lines
            self._lines.append(text)
            self._held += len(text)
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="stderr", daemon=True)
                self._thread.start()
                atexit.register(self.drain)
            if is_first:
                self._wait_written(_LINE_WAIT_S)
        return len(text)

    def flush(self) -> None:
        """Flush if possible; the thread flushes the lines that it writes."""
        if not _may_block():
            super().flush()

    def drain(self) -> None:
        """Wait until all lines are written, or for as long as the end of the process may wait."""
        with self._changed:
            self._wait_written(_END_WAIT_S)

    def _wait_written(self, timeout_s: float) -> None:
        self._changed.wait_for(lambda: not self._lines, timeout_s)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines)
                text = self._lines[0]
            super().write(text)
            super().flush()
            with self._changed:
                self._lines.popleft()
                self._held -= len(text)
                lost = 0 if self._lines else self._lost
                self._lost -= lost
                self._changed.notify_all()
            if lost:
                self._on_lost(lost)


def _may_block() -> bool:
    """Say whether standard error is a pipe, a socket or a terminal."""
    try:
        descriptor = sys.stderr.fileno()
        mode = os.fstat(descriptor).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)
