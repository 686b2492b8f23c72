"""The events of the thread that computes, on their way to the event loop.

A loop that wakes runs on a core that computes: every compute thread then waits for the one
that it holds up. So most tokens are delivered together.
"""

import asyncio
import threading
from collections.abc import Callable

from model_host.batching import Events, is_urgent

GATHER_S = 0.03
"""Events gather for so long and are delivered with the next one: a reader can't tell, and each
frame costs a signature and the work of three processes."""
WAIT_S = 2 * GATHER_S
"""An event is delivered after so long where no other comes."""


class EventQueue:
    """Delivers events in order: the urgent ones at once, others gathered."""

    def __init__(self, deliver: Callable[[Events], None]) -> None:
        """Call `deliver` on the event loop, with the events since the last call."""
        self._deliver = deliver
        self._lock = threading.Lock()
        self._posted: Events = []  # guarded by the lock, like what follows
        self._posted_at = 0.0
        """When the first of those posted came."""
        self._is_woken = False
        self._has_timer = False
        """Without one, nothing came for a while: the next event is delivered at once."""
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def open(self) -> None:
        """Deliver on the running event loop."""
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        """Deliver what waits, on the event loop, once nothing is posted any more.

        A timer left behind would keep the engine, and its memory, for as long as it waits.
        """
        self._is_closed = True
        self._wake()

    def post(self, events: Events) -> None:
        """Deliver events. Any thread may call this."""
        if not events:
            return
        with self._lock:
            now = self._loop.time()
            if not self._posted:
                self._posted_at = now
            self._posted += events
            is_due = now - self._posted_at >= GATHER_S or any(is_urgent(e) for _, e in events)
            if self._is_woken or (self._has_timer and not is_due):
                return
            self._is_woken = True
        self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        """Deliver what has been posted, and let what comes next gather."""
        with self._lock:
            self._is_woken, self._has_timer = False, True
            events, self._posted = self._posted, []
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if self._is_closed else self._loop.call_later(WAIT_S, self._look)
        if events:
            self._deliver(events)

    def _look(self) -> None:
        """Deliver what no other event came behind; if nothing has come, the next one wakes."""
        with self._lock:
            self._has_timer = bool(self._posted)
            due_at = self._posted_at + WAIT_S
        if not self._has_timer:
            self._timer = None
        elif due_at > self._loop.time():
            self._timer = self._loop.call_at(due_at, self._look)
        else:
            self._wake()
