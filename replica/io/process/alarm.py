"""A call at the next deadline of a core."""

import asyncio
import time
from collections.abc import Callable


class Alarm:
    """Calls a function at the time set last, at most once; None is never."""

    def __init__(self, ring: Callable[[], object]) -> None:
        """Start unset. `ring` is called on the running event loop."""
        self._ring = ring
        self._at: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def set(self, at: float | None) -> None:
        """Set the time, of the monotonic clock in seconds, in place of the one before."""
        if at == self._at:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._at = at
        if at is not None:
            wait_s = max(0.0, at - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._due)

    def _due(self) -> None:
        self._at = self._timer = None
        self._ring()
