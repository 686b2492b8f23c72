"""The pure core of a replica, the counterpart of syncd/hub.py (spec/04-link, 02-entry §7).

It combines the conversations in memory, the current link, the follows and the
acks. Clocks, streams, disks and randomness belong to the driver. replica/io/driver/driver.py
and the simulator call the same functions and perform the same effects (DECISIONS D82).

    follow ──► load ──► loaded ──► (linked: Open …)
    connected ──► Hello, Open for each followed conversation
    receive / handle_deadline ──► effects
    append ──► persist, then Entries if there is a link
    listed.ask ──► Open, where a hub lists it and the policy lets it be opened
    disk_refused ──► dropped from the shelf; loaded and opened again after a pause
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from replica.commits import Conversations
from replica.conversation import Conversation, Draft, Epochs, Shelf
from replica.core import pauses
from replica.core.current_link import CurrentLink
from replica.core.effects import ReplicaEffects, joined
from replica.core.follows import Follows
from replica.core.holdings import HubHoldings
from replica.core.listed import ListedFollows
from replica.core.pauses import Pauses
from replica.core.selection import FollowPolicy
from replica.ids import ConversationId, Position, PublicKey
from replica.link import (
    Effects,
    EntriesAdmitted,
    EntryFailed,
    Fault,
    Forgotten,
    Hello,
    LinkClosed,
    Listed,
    Message,
    StateChanged,
    SyncState,
    acked_by,
)
from replica.log import Entry


class ReplicaCore:
    """The state of a replica: its conversations, its link and the acks of its hub."""

    def __init__(
        self,
        key: PublicKey,
        hello: Hello,
        shelf: Shelf,
        hub: PublicKey | None = None,
        policy: FollowPolicy | None = None,
        *,
        is_own_epoch: Callable[[int], bool],
    ) -> None:
        """Start without a link; `shelf` holds the conversations in memory.

        `is_own_epoch` tells the epochs that its store began.

        The acks given to `loaded` are those of `hub`, until another proves its key. The
        `policy` says which listed conversations are opened.
        """
        self.key = key
        self.shelf = shelf
        self.epochs = Epochs(key, is_own_epoch)
        self.link = CurrentLink(key, shelf)
        self.holdings = HubHoldings(hub, self.link, shelf)
        self._follows = Follows()
        self.listed = ListedFollows(
            key, policy or FollowPolicy(), self._follows, self.link, self.holdings, shelf
        )
        """The conversations that the hub lists; `handle_deadline` does what is asked of it."""
        self._hello = hello
        self._connected_at = 0.0
        self._reconnects = Pauses(pauses.RECONNECT_FIRST_S, pauses.RECONNECT_MAX_S)

    # --- the link ---------------------------------------------------------------

    def connected(self, hub: PublicKey, now: float) -> ReplicaEffects:
        """Begin a link over a new stream to an authenticated hub."""
        effects, load = [self.link.begin(hub, self._hello, now)], []
        self._connected_at = now
        self.holdings.use_hub(hub)
        for conversation in dict.fromkeys((*self._follows, *self.shelf)):
            if conversation not in self.holdings.acks:
                load.append(conversation)
            else:
                effects.append(self._open(conversation, now))
        return self._learned(joined(effects), now, load=load)

    def disconnected(self, now: float, fault: Fault | None = None) -> ReplicaEffects:
        """Note that the stream ended, or (with a fault) that none could be opened."""
        events = self.link.end()
        self._follows.stop_reopening()
        self.listed.selection.end_link()
        if events is None and fault is None:
            return ReplicaEffects()
        if now - self._connected_at > pauses.RECONNECT_MAX_S:
            self._reconnects.reset()
        return ReplicaEffects(deliver=(*(events or ()), LinkClosed(fault)))

    def reconnect_pause_s(self, chance: float) -> float:
        """Return the pause before the next try in seconds, and double the one after it.

        `chance` in [0, 1) spreads the tries of all replicas of a restarted hub.
        """
        return self._reconnects.next_s() * (0.5 + chance)

    def receive(self, message: Message, now: float, frame_bytes: int = 0) -> ReplicaEffects:
        """Receive one message of the hub; `frame_bytes` is its encoded size."""
        effects = self.link.receive(message, now, frame_bytes)
        return self._learned(effects, now, acked=acked_by(effects.deliver))

    def handle_deadline(self, now: float) -> ReplicaEffects:
        """Send due heartbeats, make due checks, and load the conversations to open again."""
        due = self._follows.due(now)
        return self._learned(self.link.handle_deadline(now), now, load=due)

    # --- conversations ------------------------------------------------------------

    def follow(self, conversation: ConversationId, now: float, *, drafts: bool) -> ReplicaEffects:
        """Keep a conversation in sync, on this link and on all later ones."""
        self.listed.selection.forget(conversation)
        if not self._follows.add(conversation, drafts=drafts):
            return self._learned(Effects(), now)
        if conversation in self.holdings.acks:
            return self._learned(self._open(conversation, now), now)
        return self._learned(Effects(), now, load=(conversation,))

    def unfollow(self, conversation: ConversationId) -> ReplicaEffects:
        """Stop syncing a conversation."""
        known = self._follows.remove(conversation)
        self.listed.selection.remove(conversation)
        left = self.link.leave(conversation) if known else Effects()
        return _with_deadline(left, self._follows, self.link, self.listed)

    def forget(self, conversation: ConversationId) -> ReplicaEffects:
        """Drop a conversation from memory and link; the driver deletes it from the store."""
        left = self.unfollow(conversation)
        self._drop(conversation)
        return replace(left, deliver=(*left.deliver, Forgotten(conversation)))

    def loaded(
        self,
        conversation: ConversationId,
        held: Conversation | None,
        acked: Iterable[Position],
        now: float,
    ) -> ReplicaEffects:
        """Add a conversation as stored; `held` is None if the store holds nothing of it.

        If two loads of one conversation overlap, the first one counts.
        """
        self._follows.end_load(conversation)
        if held is not None and self.shelf.get(conversation) is None:
            self.shelf.add(held)
        if conversation not in self.holdings.acks:
            self.holdings.acks.load(conversation, acked)
        return self._learned(self._open(conversation, now), now)

    def unreadable(self, conversation: ConversationId, fault: Fault, now: float) -> ReplicaEffects:
        """Note that the store can't be read; a followed conversation is tried again later."""
        self._follows.end_load(conversation)
        about = replace(fault, conversation=conversation)
        failed = EntryFailed(conversation, None, about, is_own=True)
        return self._learned(Effects(deliver=(failed,)), now)

    def keep(
        self, held: Conversation, new: tuple[Entry, ...], now: float, *, send: bool = True
    ) -> ReplicaEffects:
        """Put a conversation on the shelf that gained the entries `new` outside the link.

        Without `send` another process of this replica sends them.
        """
        self.shelf.add(held)
        sent = self.link.offer(held.id, [entry.id for entry in new], now, send=send)
        return replace(self._learned(sent, now), persist=new)

    def append(
        self, entry: Entry, now: float, *, more_follow: bool = False, send: bool = True
    ) -> ReplicaEffects:
        """Admit an entry of our own and send it if there is a link. Raises EntryRefused.

        With `more_follow` it is sent in one frame with the next append (DECISIONS D25).
        Without `send` another process of this replica sends it (DECISIONS D341).
        """
        sent = self.link.append(entry, now, more_follow=more_follow, send=send)
        return self._learned(sent, now)

    def send_draft(self, draft: Draft) -> ReplicaEffects:
        """Send a draft to the hub (hosts only); it is dropped while there is no link."""
        sent = self.link.send_draft(draft)
        return _with_deadline(sent, self._follows, self.link, self.listed)

    def disk_refused(self, lost: Conversations, fault: Fault, now: float) -> ReplicaEffects:
        """Drop the conversations whose last entries the disk refused from shelf and link.

        The followed ones are loaded and opened again after a pause (DECISIONS D30).
        """
        effects = []
        for conversation in sorted(lost):
            self._drop(conversation)
            effects.append(self.link.leave(conversation))
            about = replace(fault, conversation=conversation)
            failed = EntryFailed(conversation, None, about, is_own=True)
            effects.append(Effects(deliver=(failed,)))
        return self._learned(joined(effects), now)

    def compare(self, conversation: ConversationId, now: float) -> ReplicaEffects:
        """Ask the hub for what it holds now; a Compared that is as late as `now` answers."""
        return self._learned(self.link.compare(conversation, now), now)

    # --- state ------------------------------------------------------------------------

    @property
    def has_ended(self) -> bool:
        """Say whether the link has ended before its stream; the driver then ends the stream."""
        return self.link.has_ended

    # --- internals -----------------------------------------------------------------------

    def _open(self, conversation: ConversationId, now: float) -> Effects:
        drafts = self._follows.drafts(conversation)
        if drafts is None:
            return Effects()
        acked = self.holdings.acks.positions(conversation)
        return self.link.open(conversation, now, acked=acked, drafts=drafts)

    def _learned(
        self,
        effects: Effects,
        now: float,
        *,
        load: Iterable[ConversationId] = (),
        acked: dict[ConversationId, tuple[Position, ...]] | None = None,
    ) -> ReplicaEffects:
        """Update the state from the effects of a link, and return them as a replica's."""
        for event in effects.deliver:
            match event:
                case StateChanged(conversation, SyncState.SYNCHRONIZED):
                    self.epochs.confirm(conversation)
                    self._follows.note_synchronized(conversation)
                    self.listed.note_synchronized(conversation)
                case EntriesAdmitted(conversation):
                    self.listed.selection.open.touch(conversation, now)
                case EntryFailed(conversation, None, _):
                    if self.link.lacks(conversation):
                        self._follows.reopen_later(conversation, now)
                    self.listed.selection.note_decided(conversation)
                case Listed(items) if self._hello.follow:
                    self.listed.add(items)
                case _:
                    pass
        for conversation, positions in (acked or {}).items():
            self.holdings.acks.note(conversation, positions)
        turn = self.listed.next(now)
        left = joined([effects, *map(self.link.leave, turn.close)])
        return replace(
            _with_deadline(left, self._follows, self.link, self.listed),
            load=self._follows.begin_loads((*load, *turn.open)),
            closed=turn.close,
            acked=tuple((acked or {}).items()),
        )

    def _drop(self, conversation: ConversationId) -> None:
        self.shelf.remove(conversation)
        self.holdings.acks.forget(conversation)
        self.epochs.forget(conversation)


def _with_deadline(
    effects: Effects, follows: Follows, link: CurrentLink, listed: ListedFollows
) -> ReplicaEffects:
    """Return the effects of a link as a replica's, with the time at which it is to be woken."""
    due = (follows.wake_at, link.wake_at, listed.selection.wake_at)
    wake_at = min((at for at in due if at is not None), default=None)
    return ReplicaEffects(effects.persist, effects.send, effects.deliver, wake_at)
