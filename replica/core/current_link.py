"""The current link of a replica, if any (spec/04-link §1).

Without a link every input is legal and, except for an append, has no effects. An
appended entry is admitted, and the next link sends it.
"""

from collections.abc import Iterable

from replica.conversation import Draft, Shelf
from replica.ids import ConversationId, EntryId, Position, PublicKey
from replica.link import (
    Channel,
    Effects,
    Event,
    Hello,
    Link,
    LinkClosed,
    Message,
    Phase,
    Side,
)
from replica.log import Entry


class CurrentLink:
    """The links of a replica, at most one at a time."""

    def __init__(self, key: PublicKey, shelf: Shelf) -> None:
        """Start without a link; `shelf` holds the conversations in memory."""
        self._key = key
        self._shelf = shelf
        self._link: Link | None = None

    # --- beginning and end ------------------------------------------------------------

    def begin(self, hub: PublicKey, hello: Hello, now: float) -> Effects:
        """Begin a link over a new stream to an authenticated hub, in place of any other."""
        self._link = self._new(hub, now)
        return self._link.start(hello)

    def end(self) -> tuple[Event, ...] | None:
        """End the link; return its last events without LinkClosed, or None without a link."""
        link, self._link = self._link, None
        if link is None:
            return None
        events = link.handle_disconnect().deliver
        return tuple(event for event in events if not isinstance(event, LinkClosed))

    def _new(self, hub: PublicKey | None, now: float) -> Link:
        return Link(Side.CLIENT, key=self._key, peer=hub, shelf=self._shelf, now=now)

    # --- inputs -----------------------------------------------------------------------

    def receive(self, message: Message, now: float, frame_bytes: int) -> Effects:
        """Receive a message of the hub; it is dropped if its link has already ended."""
        return self._link.receive(message, now, frame_bytes) if self._link else Effects()

    def handle_deadline(self, now: float) -> Effects:
        """Perform the due checks of the link."""
        return self._link.handle_deadline(now) if self._link else Effects()

    def open(
        self,
        conversation: ConversationId,
        now: float,
        *,
        acked: Iterable[Position],
        drafts: bool,
    ) -> Effects:
        """Open a conversation unless it is open or being opened."""
        if self._link is None or conversation in self._link.channels:
            return Effects()
        return self._link.open(conversation, now, acked=acked, drafts=drafts)

    def compare(self, conversation: ConversationId, now: float) -> Effects:
        """Compare a conversation that is open, or being opened, with the hub again."""
        if self._link is None or conversation not in self._link.channels:
            return Effects()
        return self._link.open(conversation, now)

    def leave(self, conversation: ConversationId) -> Effects:
        """Close a conversation."""
        return self._link.leave(conversation) if self._link else Effects()

    def offer(
        self, conversation: ConversationId, ids: Iterable[EntryId], now: float, *, send: bool = True
    ) -> Effects:
        """Send entries of a conversation that were admitted outside the link; see Link.offer."""
        if self._link is None:
            return Effects()
        return self._link.offer(conversation, list(ids), now, send=send)

    def append(self, entry: Entry, now: float, *, more_follow: bool, send: bool = True) -> Effects:
        """Admit an entry of the replica's key, and send it. Raises EntryRefused."""
        if self._link is not None:
            return self._link.append(entry, now, more_follow=more_follow, send=send)
        # The next link compares heads and sends the entry then.
        alone = self._new(None, now).append(entry, now)
        return Effects(alone.persist, (), alone.deliver)

    def send_draft(self, draft: Draft) -> Effects:
        """Send a draft to the hub."""
        return self._link.send_draft(draft) if self._link else Effects()

    # --- state ------------------------------------------------------------------------

    @property
    def hub(self) -> PublicKey | None:
        """The key that the hub proved; None without a link."""
        return self._link.peer if self._link else None

    @property
    def is_ready(self) -> bool:
        """Say whether hub and replica have exchanged Hello and Welcome."""
        return self._link is not None and self._link.phase is Phase.READY

    @property
    def has_ended(self) -> bool:
        """Say whether the link has ended before its stream; the driver then ends the stream."""
        return self._link is not None and self._link.phase is Phase.CLOSED

    @property
    def wake_at(self) -> float | None:
        """When the link's next deadline is due, on the caller's monotonic clock."""
        return self._link.wake_at if self._link else None

    def channel(self, conversation: ConversationId) -> Channel | None:
        """Return the channel of a conversation that is open or being opened on this link."""
        return self._link.channels.get(conversation) if self._link else None

    def lacks(self, conversation: ConversationId) -> bool:
        """Say whether there is a link on which the conversation has no channel."""
        return self._link is not None and conversation not in self._link.channels
