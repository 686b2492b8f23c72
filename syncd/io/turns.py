"""Turns for answers that no key pays for: refusals, and calls without a key (spec/11-limits).

gRPC accepts the calls of all connections one after another, 0.3 ms each, and a connection makes
the next one once one of its 256 has its answer. So whoever is answered late calls seldom: without
turns, two connections whose calls are refused at once keep the event loop busy, and each call of
others waits behind hundreds of theirs. Turns go by addresses, then by connections, since both
cost a caller more than a key does. Of IPv6 a network of 2^64 addresses counts as one address:
who has one of them has them all.
"""

import asyncio
from contextlib import suppress
from ipaddress import IPv6Interface
from urllib.parse import unquote

from replica import limits
from replica.ids import PublicKey
from syncd.bounds import Bucket, Payer, StepQueue, Tally

_GONE_MAX = 64
"""Calls that ended while they waited and are passed over in one step."""


class Turns:
    """Those that wait for a turn, STRANGER_CALLS_MAX at most.

    A place that is lacking is taken from the address that has most, and there from the
    connection that has most. Where no address has more than the newcomer's, it is taken from a
    connection of that one, unless none has more than the newcomer's own.
    """

    def __init__(self) -> None:
        """Start with nobody waiting."""
        self._bucket = Bucket(limits.TURNS_PER_S, limits.TURNS_AT_ONCE)
        self._queue: StepQueue[asyncio.Future[bool]] = StepQueue()
        self._waiting = 0
        self._by_address: Tally[bytes] = Tally()
        self._by_connection: dict[bytes, Tally[Payer]] = {}
        """How many calls of each connection wait, by address."""
        self._timer: asyncio.TimerHandle | None = None

    async def turn(self, connection: str) -> bool:
        """Return in a connection's turn; False, and at once, if it is left without a place."""
        loop = asyncio.get_running_loop()
        if not self._waiting and self._bucket.take(loop.time()):
            return True
        payer = _payer_of(connection)
        if self._waiting >= limits.STRANGER_CALLS_MAX and not self._made_room(payer):
            return False
        granted: asyncio.Future[bool] = loop.create_future()
        self._queue.add(payer, granted)
        self._waiting += 1
        self._by_address.add(payer.pool)
        self._by_connection.setdefault(payer.pool, Tally()).add(payer)
        self._go_on()
        return await granted

    def _made_room(self, payer: Payer) -> bool:
        """Let the last call of who has most go without a turn; False if `payer` has as many."""
        address = self._by_address.heaviest()
        is_own = self._by_address.of(payer.pool) + 1 >= self._by_address.of(address)
        connections = self._by_connection.get(payer.pool if is_own else address)
        if connections is None:
            return False
        heaviest = connections.heaviest()
        if is_own and connections.of(payer) + 1 >= connections.of(heaviest):
            return False
        last = self._queue.drop_last(heaviest)
        self._leave(heaviest)
        if not last.done():
            last.set_result(False)
        return True

    def _leave(self, payer: Payer) -> None:
        self._waiting -= 1
        self._by_address.remove(payer.pool)
        connections = self._by_connection[payer.pool]
        connections.remove(payer)
        if not connections:
            del self._by_connection[payer.pool]

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
            self._leave(payer)
            if granted.done():
                gone += 1
                self._queue.note(payer, 0.0)
            else:
                self._bucket.take(now)
                self._queue.note(payer, 1.0)
                granted.set_result(True)
        self._go_on()


def _payer_of(connection: str) -> Payer:
    """Return who waits: a connection, in the pool of its address."""
    address = connection.rpartition(":")[0]
    with suppress(ValueError):  # of another form
        host = unquote(address).removeprefix("ipv6:").strip("[]")
        address = str(IPv6Interface(f"{host}/64").network)
    return Payer(address.encode(), PublicKey(connection.encode()))
