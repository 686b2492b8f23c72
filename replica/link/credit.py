"""Credit: the limit of counted bytes in flight on one link (spec/04-link §4).

Pure. Limits count from the link's start and never shrink, so a lost or doubled Credit changes
nothing (DECISIONS D23).
"""

from replica import limits
from replica.conversation import Draft
from replica.link.frame import Frame
from replica.link.messages import Entries, Ids, Listing, Message
from replica.refusals import CreditExceeded


def grant_bytes() -> int:
    """Return the received bytes after which a peer grants more.

    Its Credit also continues a hub's backlog, which a hub sends in pieces of this size, so
    that no step holds up other links for long.
    """
    return limits.CREDIT_BYTES // 16


_COUNTED = (Entries, Ids, Draft, Listing)


class FlowControl:
    """The counted bytes of one link and their limits, each way."""

    def __init__(self, ahead_bytes_max: int | None = None) -> None:
        """Start with one window each way.

        With `ahead_bytes_max` no limit of the peer counts beyond that many bytes ahead of
        those sent when it came.
        """
        self._ahead_bytes_max = ahead_bytes_max
        self.sent_bytes = 0
        self.sent_limit = limits.CREDIT_BYTES
        self.received_bytes = 0
        self.received_limit = limits.CREDIT_BYTES

    def may_send(self) -> bool:
        """Say whether a counted frame may begin."""
        return self.sent_bytes < self.sent_limit

    def count_sent(self, frame: Frame) -> None:
        """Count a frame that is sent."""
        if isinstance(frame.message, _COUNTED):
            self.sent_bytes += len(frame.data)

    def count_received(self, message: Message, frame_bytes: int) -> None:
        """Count a received frame of `frame_bytes`. Raises CreditExceeded."""
        if not isinstance(message, _COUNTED):
            return
        self.received_bytes += frame_bytes
        # Twice the window, so that doubled frames are accepted and endless streams refused.
        if self.received_bytes > self.received_limit + limits.CREDIT_BYTES:
            raise CreditExceeded

    def extend(self, limit_bytes: int) -> None:
        """Raise our limit to `limit_bytes`; a smaller value is an old one and ignored."""
        self.sent_limit = max(self.sent_limit, self._bounded(limit_bytes))

    def begin(self, credit_bytes: int) -> None:
        """Take the first limit, that of the peer's greeting."""
        self.sent_limit = self._bounded(credit_bytes)

    def _bounded(self, limit_bytes: int) -> int:
        if self._ahead_bytes_max is None:
            return limit_bytes
        return min(limit_bytes, self.sent_bytes + self._ahead_bytes_max)

    def catch_up(self, sent_bytes: int) -> None:
        """Count the bytes the peer has sent as received, including those lost in transit.

        Called with each heartbeat; `sent_bytes` counts from the link's start.
        Raises CreditExceeded.
        """
        if sent_bytes > self.received_limit + limits.CREDIT_BYTES:
            raise CreditExceeded("the peer states more sent bytes than were ever allowed")
        self.received_bytes = max(self.received_bytes, sent_bytes)
        self.received_limit = self.received_bytes + limits.CREDIT_BYTES

    def grant(self) -> int | None:
        """Raise the peer's limit; return it once it grew by `grant_bytes`, else None."""
        limit = self.received_bytes + limits.CREDIT_BYTES
        if limit - self.received_limit < grant_bytes():
            return None
        self.received_limit = limit
        return limit
