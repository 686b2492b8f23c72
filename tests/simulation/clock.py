"""Virtual time: a heap of scheduled events, and the trace of past ones."""

import hashlib
import heapq
from collections.abc import Callable

EVENTS_MAX = 60_000
"""Far more events than any seed needs; beyond it, the run does not end."""


class Busy(AssertionError):
    """Events without end."""


class Clock:
    """Runs events in (time, order of scheduling); the same calls give the same run."""

    def __init__(self, *, verbose: bool = False) -> None:
        self.now = 0.0
        self.events = 0
        self.lines: list[str] = []
        self._verbose = verbose
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._hash = hashlib.sha256()

    def at(self, time: float, event: Callable[[], None]) -> None:
        """Run `event` at `time`, or now if that has passed."""
        self._count += 1
        heapq.heappush(self._heap, (max(time, self.now), self._count, event))

    def after(self, delay_s: float, event: Callable[[], None]) -> None:
        """Run `event` in `delay_s` seconds."""
        self.at(self.now + delay_s, event)

    def run(self, until: float) -> None:
        """Run everything due before `until`."""
        while self._heap and self._heap[0][0] <= until:
            self.now, _, event = heapq.heappop(self._heap)
            self.events += 1
            if self.events > EVENTS_MAX:
                raise Busy(f"{EVENTS_MAX} events: the run does not end")
            event()
        self.now = until

    def trace(self, line: str) -> None:
        """Add a line to the trace; the hash of all lines identifies the run."""
        self._hash.update(f"{self.now:.6f} {line}\n".encode())
        if self._verbose:
            self.lines.append(f"{self.now:10.4f} {line}")

    @property
    def trace_hash(self) -> str:
        """Digest of the trace so far."""
        return self._hash.hexdigest()[:16]
