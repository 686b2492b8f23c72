"""The conversations that a hub lists, followed by a policy (spec/04-link §4, 07-host §1).

Pure. selection.py decides which of them are open; this module tells it their use.
"""

from collections import Counter
from collections.abc import Container, Iterable
from enum import Enum

from replica.conversation import Shelf, hosts_awaited
from replica.core.current_link import CurrentLink
from replica.core.follows import Follows
from replica.core.holdings import HubHoldings
from replica.core.open_listed import Use
from replica.core.selection import FollowPolicy, Selection, Turn
from replica.ids import ConversationId, PublicKey
from replica.link import ListingItem, SyncState


class Leaves(Enum):
    """When a closed conversation leaves memory."""

    NOW = "now"
    LATER = "once it is durable"
    NOT = "it is used again"


class ListedFollows:
    """The listed conversations of a replica, among all that it follows."""

    def __init__(
        self,
        key: PublicKey,
        policy: FollowPolicy,
        follows: Follows,
        link: CurrentLink,
        holdings: HubHoldings,
        shelf: Shelf,
    ) -> None:
        """Follow what `policy` selects; the rest is the state of the core that owns this."""
        self.selection = Selection(policy)
        """For reading."""
        self._key = key
        self._follows = follows
        self._link = link
        self._holdings = holdings
        self._shelf = shelf
        self._pins: Counter[ConversationId] = Counter()
        self._foreign: list[ConversationId] = []

    def add(self, items: Iterable[ListingItem]) -> None:
        """Note what the hub lists, but for conversations that are followed anyway."""
        self.selection.add(item for item in items if item.conversation not in self._follows)

    def ask(self, conversation: ConversationId, now: float) -> None:
        """Note that somebody asks for a conversation, which may be closed."""
        self.selection.ask(conversation)
        self.selection.open.touch(conversation, now)

    def pin(self, conversation: ConversationId, change: int) -> None:
        """Count 1 user more (or, with -1, less) for whom a conversation stays open."""
        self._pins[conversation] += change
        if not self._pins[conversation]:
            del self._pins[conversation]

    def is_used(self, conversation: ConversationId) -> bool:
        """Say whether a conversation is followed, or has a user."""
        return conversation in self._follows or conversation in self._pins

    def leaves(self, conversation: ConversationId, writing: Container[ConversationId]) -> Leaves:
        """Say when a closed conversation leaves memory, with those that are being written.

        NOW: call the core's `forget`. LATER: ask again behind the commits of now.
        """
        if conversation in writing:
            return Leaves.LATER
        return Leaves.NOT if self.is_used(conversation) else Leaves.NOW

    def note_synchronized(self, conversation: ConversationId) -> None:
        """Note that a conversation is in sync, so that its creator is known."""
        self.selection.note_decided(conversation)
        held = self._shelf.get(conversation)
        creator = held.creator if held is not None else None
        if creator is not None and not self.selection.identify(conversation, creator):
            self._foreign.append(conversation)

    def next(self, now: float) -> Turn:
        """Return the conversations to open and close now; they are followed, or not any more."""
        others = len(self._follows) - len(self.selection.open)
        turn = self.selection.next(now, others, self._use_of)
        foreign, self._foreign = self._foreign, []
        for conversation in turn.open:
            self._follows.add(conversation, drafts=True)
        for conversation in (*foreign, *turn.close):
            self._follows.remove(conversation)
        return Turn(turn.open, (*foreign, *turn.close)) if foreign else turn

    def _use_of(self, conversation: ConversationId) -> Use:
        channel, held = self._link.channel(conversation), self._shelf.get(conversation)
        is_decided = channel is None or channel.state in (SyncState.SYNCHRONIZED, SyncState.DENIED)
        is_busy = conversation in self._pins or self._follows.is_loading(conversation)
        if is_busy or not is_decided or self._holdings.expects_acks(conversation):
            return Use.HELD
        if held is None:
            return Use.NONE
        return Use.ASKED if self._key in hosts_awaited(held) else Use.NONE
