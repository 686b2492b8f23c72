"""The streams of each key: their number and their lifetime (LINK-28).

Pure. A stream ends with the lifetime of its key's last proof. Only a new proof
on the same connection extends it, so that a stolen ticket gains nothing from its
owner's proofs (DECISIONS D34). A stream counts until its call has ended, even if
the peer does not read. Where all are in use, the key with most of them loses one to a key
with fewer (LIM-14): a stream occupies a descriptor, and keys are free.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from replica import limits
from replica.errors import AntiphonError
from replica.ids import PublicKey
from replica.refusals import RateLimited, Unauthenticated

RETRY_AFTER_S = 5.0
"""Seconds after which a call that found no place may find one."""


@dataclass(eq=False, slots=True)
class Stream:
    """One running call."""

    peer: PublicKey
    connection: str
    proved_at: float
    """Seconds on the caller's monotonic clock."""
    finish: Callable[[AntiphonError], None]
    """Ends it behind what is queued for its peer, with a reason."""
    release: Callable[[AntiphonError], None] | None = None
    """Ends it at once, with a reason, or with its next message; None if nothing does."""
    is_expired: bool = False
    is_released: bool = False


class Streams:
    """All running calls of a kind: Links and Watches, or transfers."""

    def __init__(self, per_key_max: int, *, total_max: int = limits.STREAMS_MAX) -> None:
        """Allow so many streams of one key and of all keys."""
        self._per_key_max = per_key_max
        self._total_max = total_max
        self._lifetime_s = limits.TICKET_LIFETIME_S
        self._total = 0
        self._released = 0
        """Streams that were released, and whose calls have not ended yet."""
        self._held: dict[PublicKey, list[Stream]] = {}

    def begin(
        self,
        peer: PublicKey,
        connection: str,
        now: float,
        finish: Callable[[AntiphonError], None],
        release: Callable[[AntiphonError], None] | None = None,
    ) -> Stream:
        """Add a call of a key with a valid ticket; call `end` after it. Raises RateLimited."""
        held = self._held.get(peer, [])
        if len(held) >= self._per_key_max:
            raise _no_place(f"this key holds {len(held)} links or calls already")
        if self._total - self._released >= self._total_max:
            self._make_room(len(held))
        self._total += 1
        stream = Stream(peer, connection, now, finish, release)
        self._held.setdefault(peer, []).append(stream)
        return stream

    def _make_room(self, own: int) -> None:
        """Release the oldest stream of the key with most, if that has more than one of `own`.

        Raises RateLimited if none is, or if too many that were released still occupy theirs.
        """
        most = max(self._held.values(), key=_running)
        may_release = self._released < max(1, self._total_max // limits.RELEASED_SHARE)
        if not may_release or _running(most) <= own + 1:
            raise _no_place(f"this hub holds {self._total} links or calls already")
        oldest = next((one for one in most if one.release and not one.is_released), None)
        if oldest is None or oldest.release is None:
            raise _no_place(f"this hub holds {self._total} links or calls already")
        oldest.is_released, self._released = True, self._released + 1
        oldest.release(_no_place("this key holds most streams here, and others need room"))

    def end(self, stream: Stream) -> None:
        """Remove a call that has ended."""
        self._released -= stream.is_released
        held = self._held[stream.peer]
        held.remove(stream)
        self._total -= 1
        if not held:
            del self._held[stream.peer]

    @contextmanager
    def count(self, peer: PublicKey) -> Iterator[Callable[[], None]]:
        """Count a call that ends by itself, until then; yield a check to make before each message.

        The check raises RateLimited once others need the place of the call. Raises
        RateLimited at once if there is none.
        """
        ended: list[AntiphonError] = []

        def check() -> None:
            if ended:
                raise ended[0]

        stream = self.begin(peer, "", 0.0, lambda _error: None, ended.append)
        try:
            yield check
        finally:
            self.end(stream)

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
                    stream.finish(Unauthenticated())

    def finish_all(self, error: AntiphonError) -> None:
        """End each stream behind what is queued for its peer."""
        for held in self._held.values():
            for stream in held:
                stream.finish(error)


def _running(held: list[Stream]) -> int:
    return sum(not one.is_released for one in held)


def _no_place(detail: str) -> RateLimited:
    return RateLimited(detail, retry_after_s=RETRY_AFTER_S)
