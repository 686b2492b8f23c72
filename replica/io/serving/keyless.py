"""Calls that need no key: proving one, and asking for a daemon's health (spec/11-limits, LIM-14).

Anybody may make them, so that no count of keys bounds them, and gRPC keeps what has come of a
request for as long as the call waits for the rest: up to a frame. So a number of them wait at
a time. A newer one takes the place of the oldest, whose request had more time than any other:
who sends nothing keeps nobody out.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from replica import limits
from replica.io.serving import rpc
from replica.refusals import RateLimited

RETRY_AFTER_S = 1.0


class Keyless:
    """The calls without a key that wait for their request."""

    def __init__(self) -> None:
        """Start without calls."""
        self._waiting: deque[asyncio.Timeout] = deque()

    @asynccontextmanager
    async def place(self) -> AsyncIterator[Callable[[], None]]:
        """Take a place; yield what leaves it, for when the request is there.

        Raises RateLimited in the call that waits longest where too many wait.
        """
        try:
            async with asyncio.timeout(None) as place:
                self._waiting.append(place)
                if len(self._waiting) > limits.KEYLESS_CALLS_MAX:
                    self._waiting.popleft().reschedule(0.0)

                def leave() -> None:
                    if place in self._waiting:
                        self._waiting.remove(place)

                try:
                    yield leave
                finally:
                    leave()
        except TimeoutError as error:
            detail = "too many calls without a key wait for their requests"
            raise RateLimited(detail, retry_after_s=RETRY_AFTER_S) from error

    @asynccontextmanager
    async def admit(self, _context: rpc.Context) -> AsyncIterator[rpc.RunSteps]:
        """Let a call wait for its request, and run its steps at once. Raises RateLimited."""
        async with self.place():
            yield rpc.at_once
