"""The entries that the hub is known to hold durably (spec/04-link §5).

An open channel has the newest acks. Without one, the acks of earlier links count.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from replica.conversation import Shelf
from replica.core.current_link import CurrentLink
from replica.ids import ConversationId, EntryId, PublicKey
from replica.link import Acks, Fault


class HubHoldings:
    """The acks of one hub, from the current link and from earlier ones."""

    def __init__(self, hub: PublicKey | None, link: CurrentLink, shelf: Shelf) -> None:
        """Start without acks; loaded acks are those of `hub` until another one is linked."""
        self.acks = Acks()
        self._hub = hub
        self._link = link
        self._shelf = shelf

    def use_hub(self, hub: PublicKey) -> None:
        """Count the acks of `hub` from now on; forget those of any other hub."""
        if hub != self._hub:
            self._hub, self.acks = hub, Acks()

    def unacked(self, conversation: ConversationId) -> AbstractSet[EntryId]:
        """Return the entries the hub is not known to hold durably."""
        channel = self._link.channel(conversation)
        if channel is not None:
            return channel.unacked | channel.refused.keys()
        held = self._shelf.get(conversation)
        return self.acks.unacked(held) if held is not None else set()

    def expects_acks(self, conversation: ConversationId) -> bool:
        """Say whether an ack is still to come; a refused entry is never acked."""
        channel = self._link.channel(conversation)
        return bool(self.unacked(conversation) if channel is None else channel.unacked)

    def refused(self, conversation: ConversationId) -> Mapping[EntryId, Fault]:
        """Return what the hub refused on this link, and why: it is not sent that again."""
        channel = self._link.channel(conversation)
        return channel.refused if channel is not None else {}

    def is_acked(self, conversation: ConversationId, entry: EntryId) -> bool:
        """Say whether the hub showed on this link that it holds `entry` durably."""
        channel = self._link.channel(conversation)
        if channel is None or not channel.is_open:
            return False
        return entry not in channel.unacked and entry not in channel.refused
