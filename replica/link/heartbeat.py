"""The beats of a link, and its end for want of any (spec/04-link §4, LINK-7).

Pure, and private to link.py: time is an argument, in seconds on one clock.
"""

from replica import limits
from replica.link.messages import Ping, Welcome


class Heartbeat:
    """When something was heard last, and when the next beat is due."""

    def __init__(self, now: float) -> None:
        """Start as if something was heard now."""
        self._received_at = now
        self._begun_at = now
        self._pause_s = limits.HEARTBEAT_S
        self._nonce = 0

    def note_received(self, now: float) -> None:
        """Take it that the peer is there."""
        self._received_at = now

    def adopt(self, message: Welcome) -> None:
        """Beat as often as the hub's idle time-out asks."""
        self._pause_s = max(1.0, min(limits.HEARTBEAT_S, message.idle_timeout_ms / 3000))

    @property
    def idle_at(self) -> float:
        """When the link ends unless something is heard before."""
        return self._received_at + limits.IDLE_TIMEOUT_S

    @property
    def due_at(self) -> float:
        """When the next beat is due."""
        return self._begun_at + self._pause_s

    def begin(self, now: float) -> bool:
        """Say whether a beat is due, and begin it."""
        is_due = now >= self.due_at
        if is_due:
            self._begun_at = now
        return is_due

    def ping(self, sent_bytes: int) -> Ping:
        """Return the next beat."""
        self._nonce += 1
        return Ping(self._nonce, sent_bytes)
