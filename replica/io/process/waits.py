"""Waits of bounded length under one timer: one each would cost more than what is waited for."""

import asyncio


class Waits:
    """The waits in progress, all of the same length."""

    def __init__(self) -> None:
        """Start without waits."""
        self._ends: dict[asyncio.Timeout, float] = {}
        """When each of them is over, the oldest first."""
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, wait: asyncio.Timeout, length_s: float) -> None:
        """End a wait after so many seconds, unless it is left before."""
        loop = asyncio.get_running_loop()
        self._ends[wait] = ends_at = loop.time() + length_s
        if self._timer is None:
            self._timer = loop.call_at(ends_at, self._end_overdue)

    def leave(self, wait: asyncio.Timeout) -> None:
        """Forget a wait, whether it is over or not."""
        self._ends.pop(wait, None)

    def _end_overdue(self) -> None:
        """End the waits that are over, and look again when the next one is."""
        self._timer = None
        loop = asyncio.get_running_loop()
        while self._ends:
            wait, ends_at = next(iter(self._ends.items()))
            if ends_at > loop.time():
                self._timer = loop.call_at(ends_at, self._end_overdue)
                return
            del self._ends[wait]
            wait.reschedule(0.0)
