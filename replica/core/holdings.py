"""What the hub is known to hold of a conversation (spec/04-link §5).

An open channel knows most; without one, the acks of earlier links count.
"""

from collections.abc import Set as AbstractSet

from replica.conversation import Shelf
from replica.core.current_link import CurrentLink
from replica.ids import ConversationId, EntryId, PublicKey
from replica.link import Acks


class HubHoldings:
    """The acks of one hub, on the current link and on those before it."""

    def __init__(self, hub: PublicKey | None, link: CurrentLink, shelf: Shelf) -> None:
        """Start with no acks; those loaded later are of `hub`, until another proves its key."""
        self.acks = Acks()
        self._hub = hub
        self._link = link
        self._shelf = shelf

    def use_hub(self, hub: PublicKey) -> None:
        """Forget the acks of another hub: this one never acknowledged the same entries."""
        if hub != self._hub:
            self._hub, self.acks = hub, Acks()

    def unacked(self, conversation: ConversationId) -> AbstractSet[EntryId]:
        """Return the entries the hub is not known to hold durably."""
        channel = self._link.channel(conversation)
        if channel is not None:
            return channel.unacked | channel.refused
        held = self._shelf.get(conversation)
        return self.acks.unacked(held) if held is not None else set()

    def expects_acks(self, conversation: ConversationId) -> bool:
        """Say whether the hub may still ack an entry; it never acks one that it refused."""
        channel = self._link.channel(conversation)
        return bool(self.unacked(conversation) if channel is None else channel.unacked)

    def is_acked(self, conversation: ConversationId, entry: EntryId) -> bool:
        """Say whether the hub showed on this link that it holds `entry` durably."""
        channel = self._link.channel(conversation)
        return channel is not None and channel.is_open and entry not in self.unacked(conversation)
