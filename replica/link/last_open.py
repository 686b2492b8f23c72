"""The last Open of a conversation on a link, and which Opened answers it (spec/04-link §5).

Pure, and private to this package. An answer names no Open, so a client has one at a time
whose answer it waits for: what the hub held then is here, once it is answered.
"""

from dataclasses import dataclass

from replica import limits
from replica.ids import Digest
from replica.link.messages import Opened


@dataclass(slots=True)
class LastOpen:
    """The last Open that a client sent, if any."""

    is_unanswered: bool = False
    with_heads: bool = False
    """It named our heads, so the peer sends missing entries without being asked."""
    digest: Digest | None = None
    """The digest that it stated."""
    sent_at: float = 0.0
    """When it was sent, in seconds on the link's clock."""
    is_due_again: bool = False
    """The application asks for a comparison that begins later than the last Open."""

    def begin(self, digest: Digest, now: float, *, with_heads: bool) -> None:
        """Note that an Open is sent."""
        self.is_unanswered, self.is_due_again = True, False
        self.digest, self.sent_at, self.with_heads = digest, now, with_heads

    def awaits_answer(self, now: float) -> bool:
        """Say whether an answer may still come; after RESYNC_S it counts as lost."""
        return self.is_unanswered and now < self.sent_at + limits.RESYNC_S

    def is_answered_by(self, message: Opened) -> bool:
        """Say whether an Opened answers it.

        One answer per Open, and only one that may follow it: else a hub that writes digests
        without reading makes a client send its heads for each of them.
        """
        if not self.is_unanswered:
            return False
        if message.equal:
            return message.digest == self.digest  # LINK-60
        return message.heads is not None or not self.with_heads  # LINK-11
