"""The beats of a link, and its end for want of any (spec/04-link §4, LINK-7).

Pure, and private to link.py: time is an argument, in seconds on one clock.
"""

from replica import limits
from replica.link.messages import Ping, Welcome


class Beats:
    """When something was heard last, and when the next beat is due."""

    def __init__(self, now: float) -> None:
        """Start as if something was heard now."""
        self._last_heard = now
        self._last_beat = now
        self._pause_s = limits.HEARTBEAT_S
        self._nonce = 0

    def hear(self, now: float) -> None:
        """Take it that the peer is there."""
        self._last_heard = now

    def adopt(self, message: Welcome) -> None:
        """Beat as often as the hub's idle time-out asks."""
        self._pause_s = max(1.0, min(limits.HEARTBEAT_S, message.idle_timeout_ms / 3000))

    @property
    def idle_at(self) -> float:
        """When the link ends unless something is heard before."""
        return self._last_heard + limits.IDLE_TIMEOUT_S

    @property
    def beat_at(self) -> float:
        """When the next beat is due."""
        return self._last_beat + self._pause_s

    def begin(self, now: float) -> bool:
        """Say whether a beat is due, and begin it."""
        is_due = now >= self.beat_at
        if is_due:
            self._last_beat = now
        return is_due

    def ping(self, sent_bytes: int) -> Ping:
        """Return the next beat."""
        self._nonce += 1
        return Ping(self._nonce, sent_bytes)
