"""The events of a replay on their way to its caller (spec/07-host §10).

A replay never waits for its reader: it holds all findings to its end anyway, for the receipt,
and of several reports on its progress the last one is enough. gRPC can't cancel a write that
the caller does not read (DECISIONS D35), so whoever drops a stream goes on at once, and the
call ends when its caller reads again, or leaves.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from replica.io import ReplayEvent, ReplayProgress, event_to_pb, rpc
from replica.limits import WRITE_TIMEOUT_S
from replica.refusals import SlowReader


class ReplayStream:
    """The events of one replay that are not written yet, in order."""

    def __init__(self, on_drop: Callable[[], None]) -> None:
        """Start empty; `on_drop` is called once, if the caller does not read."""
        self._on_drop = on_drop
        self._events: deque[ReplayEvent] = deque()
        self._changed = asyncio.Event()
        self._has_ended = False
        self.is_dropped = False
        """Whether its caller did not read."""

    def put(self, event: ReplayEvent) -> None:
        """Queue an event; progress takes the place of progress that was not written."""
        last = self._events[-1] if self._events else None
        if isinstance(event, ReplayProgress) and isinstance(last, ReplayProgress):
            self._events.pop()
        self._events.append(event)
        self._changed.set()

    def end(self) -> None:
        """Let `write_all` return behind the last event."""
        self._has_ended = True
        self._changed.set()

    def drop(self) -> None:
        """Give up the events: their caller does not read them."""
        if not self.is_dropped:
            self.is_dropped = True
            self._events.clear()
            self._changed.set()
            self._on_drop()

    async def write_all(self, context: rpc.Context, check: Callable[[], object]) -> None:
        """Write events until the end; `check` raises where the caller may read no more of them.

        Drops the stream if a write takes longer than WRITE_TIMEOUT_S. Raises SlowReader for a
        dropped one, once its caller reads again.
        """
        loop = asyncio.get_running_loop()
        while not self.is_dropped:
            if self._events:
                check()
                data = event_to_pb(self._events.popleft()).SerializeToString()
                timer = loop.call_later(WRITE_TIMEOUT_S, self.drop)
                try:
                    await context.write(data)
                finally:
                    timer.cancel()
            elif self._has_ended:
                return
            else:
                self._changed.clear()
                await self._changed.wait()
        raise SlowReader
