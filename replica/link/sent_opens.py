"""The Opens of a client that have no answer yet (spec/04-link §5).

Pure, and private to this package. An answer states the number of its Open, so it shows what the
hub held once that Open was there, also where it is late and others follow.
"""

from dataclasses import dataclass

from replica import limits
from replica.ids import Digest
from replica.link.messages import Opened

UNANSWERED_MAX = 16
"""Opens of a conversation whose answers are awaited; those before them are given up."""


@dataclass(frozen=True, slots=True)
class SentOpen:
    """An Open that a client sent."""

    number: int
    digest: Digest
    with_heads: bool
    """It named our heads, so the hub sends missing entries without being asked."""
    at: float
    """When it was sent, in seconds on the link's clock."""
    is_asked: bool = False
    """The application asked for it: it comes in no rhythm, and its answer is no step of one."""


class SentOpens:
    """The unanswered Opens of one conversation, by number."""

    def __init__(self) -> None:
        """Start without any."""
        self.is_due = False
        """The application asks for a comparison that begins later than the last Open."""
        self.last_number = 0
        self._unanswered: dict[int, SentOpen] = {}

    def __len__(self) -> int:
        """Count those without an answer."""
        return len(self._unanswered)

    def add(self, sent: SentOpen) -> None:
        """Note that an Open is sent; its number is higher than all before it."""
        self.is_due, self.last_number = False, sent.number
        self._unanswered[sent.number] = sent
        if len(self._unanswered) > UNANSWERED_MAX:
            del self._unanswered[next(iter(self._unanswered))]

    def are_awaited(self, now: float) -> bool:
        """Say whether the answer to the last Open may still come; after RESYNC_S it is late."""
        last = self._unanswered.get(self.last_number)
        return last is not None and now < last.at + limits.RESYNC_S

    def answered_by(self, message: Opened) -> SentOpen | None:
        """Return the Open that an Opened answers, and forget those before it; None if none is.

        One answer per Open, and only one that may follow it: else a hub that writes digests
        without reading makes a client send its heads for each of them.
        """
        sent = self._unanswered.get(message.number)
        if sent is None or (message.equal and message.digest != sent.digest):  # LINK-60
            return None
        if not message.equal and message.heads is None and sent.with_heads:  # LINK-11
            return None
        self._unanswered = {i: one for i, one in self._unanswered.items() if i > sent.number}
        return sent

    def give_up(self) -> None:
        """Await no answer any more: the hub refused the conversation."""
        self._unanswered.clear()
