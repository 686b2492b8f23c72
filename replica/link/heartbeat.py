"""The heartbeat of a link and its idle time-out (spec/04-link §4, LINK-7).

Pure, and private to link.py: time is an argument, in seconds on one clock.
"""

from replica import limits
from replica.link.messages import Ping, Welcome


class Heartbeat:
    """The times of the last message received and of the next heartbeat."""

    def __init__(self, now: float) -> None:
        """Start as if a message was received at `now`."""
        self._received_at = now
        self._begun_at = now
        self._pause_s = limits.HEARTBEAT_S
        self._nonce = 0

    def note_received(self, now: float) -> None:
        """Note that a message of the peer was received."""
        self._received_at = now

    def adopt(self, message: Welcome) -> None:
        """Set the pause to a third of the hub's idle time-out, between 1 s and HEARTBEAT_S."""
        self._pause_s = max(1.0, min(limits.HEARTBEAT_S, message.idle_timeout_ms / 3000))

    @property
    def idle_at(self) -> float:
        """The time at which the link ends unless a message is received before."""
        return self._received_at + limits.IDLE_TIMEOUT_S

    @property
    def due_at(self) -> float:
        """The time at which the next heartbeat is due."""
        return self._begun_at + self._pause_s

    def begin(self, now: float) -> bool:
        """Say whether a heartbeat is due; if so, the next pause begins."""
        is_due = now >= self.due_at
        if is_due:
            self._begun_at = now
        return is_due

    def ping(self, sent_bytes: int) -> Ping:
        """Return the next Ping; nonces count from 1."""
        self._nonce += 1
        return Ping(self._nonce, sent_bytes)
