"""The events of the thread that computes, on their way to the event loop.

A loop that wakes runs on a core that computes: every compute thread then waits for the one
that it holds up. So most tokens are delivered together.
"""

import asyncio
import threading
from collections.abc import Callable

from model_host.job import Events, is_urgent

GATHER_S = 0.03
"""A token is delivered after so long, with those since: a reader can't tell, and each frame
costs a signature."""


class EventQueue:
    """Delivers events in order: the urgent ones at once, others within GATHER_S."""

    def __init__(self, deliver: Callable[[Events], None]) -> None:
        """Call `deliver` on the event loop, with the events since the last call."""
        self._deliver = deliver
        self._lock = threading.Lock()
        self._posted: Events = []  # guarded by the lock, like what follows
        self._posted_at = 0.0
        """When the first of those posted came."""
        self._is_woken = False
        self._has_timer = False

    def open(self) -> None:
        """Deliver on the running event loop."""
        self._loop = asyncio.get_running_loop()

    def post(self, events: Events) -> None:
        """Deliver events. Any thread may call this."""
        if not events:
            return
        with self._lock:
            if not self._posted:
                self._posted_at = self._loop.time()
            self._posted += events
            may_wait = self._has_timer and not any(is_urgent(event) for _, event in events)
            if may_wait or self._is_woken:
                return
            self._is_woken = True
        self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        """Deliver what has been posted, and let what comes next gather."""
        with self._lock:
            self._is_woken = False
            needs_timer, self._has_timer = not self._has_timer, True
        if needs_timer:
            self._loop.call_later(GATHER_S, self._look)
        self._deliver_posted()

    def _look(self) -> None:
        """Deliver what has gathered for long enough; if nothing has, the next event wakes."""
        with self._lock:
            self._has_timer = bool(self._posted)
            if not self._has_timer:
                return
            due_at = self._posted_at + GATHER_S
        if due_at > self._loop.time():
            self._loop.call_at(due_at, self._look)
            return
        self._loop.call_later(GATHER_S, self._look)
        self._deliver_posted()

    def _deliver_posted(self) -> None:
        with self._lock:
            events, self._posted = self._posted, []
        if events:
            self._deliver(events)
