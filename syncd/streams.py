"""The streams of each key: their number and their lifetime (LINK-28).

Pure. A stream ends with the lifetime of its key's last proof. Only a new proof
on the same connection extends it, so that a stolen ticket gains nothing from its
owner's proofs (DECISIONS D34). A stream counts until its call has ended, even if
the peer does not read.
"""

from collections.abc import Callable
from dataclasses import dataclass

from replica import limits
from replica.ids import PublicKey
from replica.refusals import QuotaExceeded


@dataclass(eq=False, slots=True)
class Stream:
    """One running Link or Watch; `expire` is called once, when its last proof is too old."""

    peer: PublicKey
    connection: str
    proved_at: float
    """Seconds on the caller's monotonic clock."""
    expire: Callable[[], None]
    is_expired: bool = False


class Streams:
    """All running Link and Watch calls."""

    def __init__(self, per_key_max: int, lifetime_s: float = limits.TICKET_LIFETIME_S) -> None:
        """Allow at most `per_key_max` streams of one key; a proof is valid for `lifetime_s`."""
        self._per_key_max = per_key_max
        self._lifetime_s = lifetime_s
        self._held: dict[PublicKey, list[Stream]] = {}

    def begin(
        self, peer: PublicKey, connection: str, now: float, expire: Callable[[], None]
    ) -> Stream:
        """Add a call of a key with a valid ticket; call `end` after it. Raises QuotaExceeded."""
        held = self._held.get(peer, [])
        if len(held) >= self._per_key_max:
            raise QuotaExceeded(f"this key holds {len(held)} links already")
        stream = Stream(peer, connection, now, expire)
        self._held.setdefault(peer, []).append(stream)
        return stream

    def end(self, stream: Stream) -> None:
        """Remove a call that has ended."""
        held = self._held[stream.peer]
        held.remove(stream)
        if not held:
            del self._held[stream.peer]

    def renew(self, peer: PublicKey, connection: str, now: float) -> None:
        """Extend the streams of `peer` on this connection after a new proof of its key."""
        for stream in self._held.get(peer, ()):
            if stream.connection == connection:
                stream.proved_at = now

    def handle_deadlines(self, now: float) -> None:
        """End each stream whose last proof is too old."""
        for held in tuple(self._held.values()):
            for stream in tuple(held):
                is_due = now >= stream.proved_at + self._lifetime_s
                if is_due and not stream.is_expired:
                    stream.is_expired = True
                    stream.expire()
