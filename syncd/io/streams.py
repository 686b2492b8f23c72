"""The long calls of each key: how many there are, and until when a proof vouches for them.

A link outlives no ticket: its end is put off by each new proof of the key on
the same connection, so that a stolen ticket gains nothing from the proofs of
its owner (spec/04-link §3).
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from replica import limits
from replica.ids import PublicKey
from replica.refusals import QuotaExceeded


@dataclass(eq=False, slots=True)
class _Stream:
    connection: str
    expire: Callable[[], None]
    timer: asyncio.TimerHandle | None = None

    def renew(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        loop = asyncio.get_running_loop()
        self.timer = loop.call_later(limits.TICKET_LIFETIME_S, self.expire)


class Streams:
    """All Link and Watch calls under way."""

    def __init__(self, per_key_max: int) -> None:
        """Take at most so many of one key."""
        self._per_key_max = per_key_max
        self._held: dict[PublicKey, list[_Stream]] = {}

    @contextmanager
    def hold(self, peer: PublicKey, connection: str, expire: Callable[[], None]) -> Iterator[None]:
        """Count a call until it has ended, also one that nobody reads.

        `expire` is called once no proof of the key is young enough. Raises QuotaExceeded.
        """
        held = self._held.get(peer, [])
        if len(held) >= self._per_key_max:
            raise QuotaExceeded(f"this key holds {len(held)} links already")
        self._held[peer] = held
        stream = _Stream(connection, expire)
        held.append(stream)
        stream.renew()
        try:
            yield
        finally:
            assert stream.timer is not None, "renew() has set it"
            stream.timer.cancel()
            held.remove(stream)
            if not held:
                del self._held[peer]

    def renew(self, peer: PublicKey, connection: str) -> None:
        """Take it that `peer` has just proved its key on this connection."""
        for stream in self._held.get(peer, ()):
            if stream.connection == connection:
                stream.renew()
