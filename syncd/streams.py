"""The long calls of each key: how many there are, and until when a proof vouches for them.

Pure. A stream outlives no ticket: its end is put off by each new proof of the
key on the same connection, so that a stolen ticket gains nothing from the
proofs of its owner (LINK-28). A stream counts until its call has ended, also
one that nobody reads.
"""

from collections.abc import Callable
from dataclasses import dataclass

from replica import limits
from replica.ids import PublicKey
from replica.refusals import QuotaExceeded


@dataclass(eq=False, slots=True)
class Stream:
    """One Link or Watch under way; `expire` is called once when no proof is young enough."""

    peer: PublicKey
    connection: str
    proved_at: float
    """Seconds on the caller's monotonic clock."""
    expire: Callable[[], None]
    is_expired: bool = False


class Streams:
    """All Link and Watch calls under way."""

    def __init__(self, per_key_max: int, lifetime_s: float = limits.TICKET_LIFETIME_S) -> None:
        """Take at most so many of one key; a proof vouches for `lifetime_s`."""
        self._per_key_max = per_key_max
        self._lifetime_s = lifetime_s
        self._held: dict[PublicKey, list[Stream]] = {}

    def begin(
        self, peer: PublicKey, connection: str, now: float, expire: Callable[[], None]
    ) -> Stream:
        """Count a call of a key with a valid ticket; `end` follows. Raises QuotaExceeded."""
        held = self._held.get(peer, [])
        if len(held) >= self._per_key_max:
            raise QuotaExceeded(f"this key holds {len(held)} links already")
        stream = Stream(peer, connection, now, expire)
        self._held.setdefault(peer, []).append(stream)
        return stream

    def end(self, stream: Stream) -> None:
        """Forget a call that has ended."""
        held = self._held[stream.peer]
        held.remove(stream)
        if not held:
            del self._held[stream.peer]

    def renew(self, peer: PublicKey, connection: str, now: float) -> None:
        """Take it that `peer` has just proved its key on this connection."""
        for stream in self._held.get(peer, ()):
            if stream.connection == connection:
                stream.proved_at = now

    def handle_deadlines(self, now: float) -> None:
        """End each stream that no proof vouches for any more."""
        for held in tuple(self._held.values()):
            for stream in tuple(held):
                is_due = now >= stream.proved_at + self._lifetime_s
                if is_due and not stream.is_expired:
                    stream.is_expired = True
                    stream.expire()
