"""Turns for answers that no key pays for: refusals, and calls without a key (spec/11-limits).

gRPC accepts the calls of all connections one after another, 0.3 ms each, and a connection makes
the next one once one of its 256 has its answer. So whoever is answered late calls seldom: without
turns, two connections whose calls are refused at once keep the event loop busy, and each call of
others waits behind hundreds of theirs. Turns go by addresses, then by connections, since both
cost a caller more than a key does.
"""

import asyncio

from replica import limits
from replica.ids import PublicKey
from syncd.bucket import Bucket
from syncd.shares import Payer
from syncd.step_queue import StepQueue

TURNS_PER_S = 200.0
"""Turns while some wait: with all their work they keep a hub busy for a fifth of the time."""
TURNS_AT_ONCE = 200
"""Turns before any waits: some 0.2 s of work."""
_GONE_MAX = 64
"""Calls that ended while they waited and are passed over in one step."""


class Turns:
    """Those that wait for a turn."""

    def __init__(self) -> None:
        """Start with nobody waiting."""
        self._bucket = Bucket(TURNS_PER_S, TURNS_AT_ONCE)
        self._queue: StepQueue[asyncio.Future[None]] = StepQueue()
        self._waiting = 0
        self._timer: asyncio.TimerHandle | None = None

    async def turn(self, connection: str) -> bool:
        """Return in a connection's turn; False, and at once, if too many wait."""
        loop = asyncio.get_running_loop()
        if not self._waiting and self._bucket.take(loop.time()):
            return True
        if self._waiting >= limits.STRANGER_CALLS_MAX:
            return False
        granted: asyncio.Future[None] = loop.create_future()
        self._queue.add(_payer_of(connection), granted)
        self._waiting += 1
        self._go_on()
        await granted
        return True

    def _go_on(self) -> None:
        if self._waiting and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._bucket.wait_s(loop.time()), self._grant)

    def _grant(self) -> None:
        """Give the turns that are due, in order."""
        self._timer = None
        now, gone = asyncio.get_running_loop().time(), 0
        while self._waiting and gone < _GONE_MAX and self._bucket.wait_s(now) <= 0:
            payer, granted = self._queue.take()
            self._waiting -= 1
            if granted.done():
                gone += 1
                self._queue.note(payer, 0.0)
            else:
                self._bucket.take(now)
                self._queue.note(payer, 1.0)
                granted.set_result(None)
        self._go_on()


def _payer_of(connection: str) -> Payer:
    """Return who waits: a connection, in the pool of its address."""
    address = connection.rpartition(":")[0]
    return Payer(address.encode(), PublicKey(connection.encode()))
