"""The pure core of a replica, the twin of syncd/hub.py (spec/04-link, 02-entry §7).

What is followed, in which epoch the next entry stands, what a hub is known to
hold, what is opened again after which pause, and what a refused commit undoes.
Clocks, streams, disks and chance are the driver's: replica/io/replica.py and
the simulator call the same functions and perform the same effects.

    follow ──► load ──► loaded ──► (linked: Open …)
    connected ──► Hello, Open for all that is followed
    receive / handle_deadline ──► effects
    append ──► persist, then Entries where there is a link
    disk_refused ──► off the shelf; loaded and opened again after a pause
"""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from replica.commits import Conversations
from replica.conversation import Conversation, Draft, Epochs, Shelf
from replica.ids import ConversationId, EntryId, Position, PublicKey
from replica.link import (
    Acks,
    Channel,
    Effects,
    EntryFailed,
    Event,
    Fault,
    Frame,
    Hello,
    Link,
    LinkClosed,
    Listed,
    Message,
    Phase,
    Side,
    StateChanged,
    SyncState,
    acked_by,
    conversation_of,
)
from replica.log import Entry

RECONNECT_FIRST_S = 0.1
RECONNECT_MAX_S = 5.0
REOPEN_FIRST_S = 1.0
REOPEN_MAX_S = 60.0
"""A followed conversation that either side had to leave is opened again after such pauses."""


@dataclass(frozen=True, slots=True)
class ReplicaEffects:
    """What the driver does now, in this order; `load` and `acked` at once, in any order."""

    persist: tuple[Entry, ...] = ()
    """Durable BEFORE anything below is seen; on failure the core is told `disk_refused`."""
    send: tuple[Frame, ...] = ()
    """On the link there is now; nothing is lost where it has ended meanwhile."""
    deliver: tuple[Event, ...] = ()
    """For the application."""
    wake_at: float | None = None
    """Call handle_deadline then: seconds on the caller's monotonic clock."""
    load: tuple[ConversationId, ...] = ()
    """Read these from the store and call `loaded`, be it with nothing."""
    acked: tuple[tuple[ConversationId, tuple[Position, ...]], ...] = ()
    """Durable at the hub by now: worth remembering, learnt again if forgotten."""

    @property
    def about(self) -> Conversations:
        """The conversations these effects speak of."""
        named = (conversation_of(shown) for shown in (*self.send, *self.deliver))
        return {one for one in named if one is not None}


class ReplicaCore:
    """Everything a replica knows of its conversations and its hub."""

    def __init__(
        self, key: PublicKey, hello: Hello, shelf: Shelf, hub: PublicKey | None = None
    ) -> None:
        """Start without a link; `shelf` holds what is in memory.

        The acks given to `loaded` are those of `hub`, until another proves its key.
        """
        self.key = key
        self.shelf = shelf
        self.epochs = Epochs(key)
        self.acks = Acks()
        self._hello = hello
        self._hub = hub
        self._link: Link | None = None
        self._connected_at = 0.0
        self._pause_s = RECONNECT_FIRST_S
        self._drafts: dict[ConversationId, bool] = {}
        """What is followed, and whether with drafts."""
        self._pauses_s: dict[ConversationId, float] = {}
        self._reopen_at: dict[ConversationId, float] = {}
        self._loading: set[ConversationId] = set()

    # --- the link ---------------------------------------------------------------

    def connected(self, hub: PublicKey, now: float) -> ReplicaEffects:
        """Begin a link over a fresh stream to an authenticated hub."""
        self._link = link = self._new_link(hub, now)
        self._connected_at = now
        if hub != self._hub:
            # It never acknowledged what another hub did: all acks are read again.
            self._hub, self.acks = hub, Acks()
        effects, load = [link.start(self._hello)], []
        for conversation in {**self._drafts, **dict.fromkeys(self.shelf)}:
            if conversation not in self.acks:
                load.append(conversation)
            else:
                effects.append(self._open(conversation, now))
        return self._taken(_joined(effects), now, load=load)

    def disconnected(self, now: float, fault: Fault | None = None) -> ReplicaEffects:
        """Take it that the stream is gone, or (with the reason) that none could be had."""
        link, self._link = self._link, None
        self._reopen_at.clear()
        if link is None and fault is None:
            return ReplicaEffects()
        if now - self._connected_at > RECONNECT_MAX_S:
            self._pause_s = RECONNECT_FIRST_S
        told = link.handle_disconnect().deliver if link is not None else ()
        news = tuple(event for event in told if not isinstance(event, LinkClosed))
        return ReplicaEffects(deliver=(*news, LinkClosed(fault)))

    def reconnect_pause_s(self, chance: float) -> float:
        """Return the pause before the next try, spread by `chance` in [0, 1), and let it grow.

        Spread, so that all clients of a restarted hub do not come at once.
        """
        pause_s = self._pause_s * (0.5 + chance)
        self._pause_s = min(2 * self._pause_s, RECONNECT_MAX_S)
        return pause_s

    def receive(self, message: Message, now: float, frame_bytes: int = 0) -> ReplicaEffects:
        """Take one message of the hub; `frame_bytes` is its size on the wire."""
        if self._link is None:
            return ReplicaEffects(wake_at=self._wake_at())  # it crossed the end of its link
        effects = self._link.receive(message, now, frame_bytes)
        return self._taken(effects, now, acked=acked_by(effects.deliver))

    def handle_deadline(self, now: float) -> ReplicaEffects:
        """Do what is due: the link's beats and checks, and conversations to open again."""
        due = [conversation for conversation, at in self._reopen_at.items() if now >= at]
        for conversation in due:
            del self._reopen_at[conversation]
        effects = self._link.handle_deadline(now) if self._link is not None else Effects()
        return self._taken(effects, now, load=due)

    # --- conversations ------------------------------------------------------------

    def follow(self, conversation: ConversationId, now: float, *, drafts: bool) -> ReplicaEffects:
        """Keep a conversation in sync, on this link and all later ones."""
        if conversation in self._drafts:
            return ReplicaEffects(wake_at=self._wake_at())
        self._drafts[conversation] = drafts
        if conversation in self.acks:
            return self._taken(self._open(conversation, now), now)
        return self._taken(Effects(), now, load=(conversation,))

    def unfollow(self, conversation: ConversationId) -> ReplicaEffects:
        """Stop syncing a conversation."""
        known = self._drafts.pop(conversation, None) is not None
        self._reopen_at.pop(conversation, None)
        left = self._link.leave(conversation) if known and self._link is not None else Effects()
        return replace(_plain(left), wake_at=self._wake_at())

    def forget(self, conversation: ConversationId) -> ReplicaEffects:
        """Drop all of a conversation; the store is the driver's."""
        left = self.unfollow(conversation)
        self._drop(conversation)
        return left

    def loaded(
        self,
        conversation: ConversationId,
        held: Conversation | None,
        acked: Iterable[Position],
        now: float,
    ) -> ReplicaEffects:
        """Take what the store holds of a conversation: None if nothing.

        Two loads of one conversation may cross; the first one counts.
        """
        self._loading.discard(conversation)
        if held is not None and self.shelf.get(conversation) is None:
            self.shelf.add(held)
        if conversation not in self.acks:
            self.acks.load(conversation, acked)
        return self._taken(self._open(conversation, now), now)

    def unreadable(self, conversation: ConversationId, fault: Fault, now: float) -> ReplicaEffects:
        """Take it that the store can't be read now: what is followed is tried again later."""
        self._loading.discard(conversation)
        told = EntryFailed(conversation, None, replace(fault, conversation=conversation))
        return self._taken(Effects(deliver=(told,)), now)

    def keep(self, held: Conversation, new: tuple[Entry, ...], now: float) -> ReplicaEffects:
        """Put a loaded conversation in place that was extended beside the link, by `new`."""
        self.shelf.add(held)
        sent = Effects()
        if self._link is not None:
            sent = self._link.offer(held.id, [entry.id for entry in new], now)
        return replace(self._taken(sent, now), persist=new)

    def append(self, entry: Entry, now: float, *, more_follow: bool = False) -> ReplicaEffects:
        """Admit an entry of our own and send it where there is a link. Raises EntryRefused.

        With `more_follow` it waits for the next append, to share its frame.
        """
        if self._link is not None:
            effects = self._link.append(entry, now, more_follow=more_follow)
            return self._taken(effects, now)
        # What a link would send is found again when one is opened.
        alone = self._new_link(None, now).append(entry, now)
        return ReplicaEffects(alone.persist, (), alone.deliver, self._wake_at())

    def send_draft(self, draft: Draft) -> ReplicaEffects:
        """Stream output to the hub (host); dropped while there is no link."""
        effects = self._link.send_draft(draft) if self._link is not None else Effects()
        return replace(_plain(effects), wake_at=self._wake_at())

    def disk_refused(self, lost: Conversations, fault: Fault, now: float) -> ReplicaEffects:
        """Undo what memory believes of conversations whose last entries the disk refused.

        They leave the shelf and the link; what is followed is read and opened again.
        """
        effects = []
        for conversation in sorted(lost):
            self._drop(conversation)
            if self._link is not None:
                effects.append(self._link.leave(conversation))
            told = replace(fault, conversation=conversation)
            effects.append(Effects(deliver=(EntryFailed(conversation, None, told),)))
        return self._taken(_joined(effects), now)

    # --- what is known --------------------------------------------------------------

    @property
    def has_ended(self) -> bool:
        """Say whether the link is over, though its stream still stands: the driver ends that."""
        return self._link is not None and self._link.phase is Phase.CLOSED

    @property
    def is_linked(self) -> bool:
        """Say whether hub and replica have greeted each other."""
        return self._link is not None and self._link.phase is Phase.READY

    @property
    def hub(self) -> PublicKey | None:
        """The key the hub proved; None while there is no link."""
        return self._link.peer if self._link is not None else None

    def channel(self, conversation: ConversationId) -> Channel | None:
        """Return what is believed of a conversation that is open on this link, or being opened."""
        return self._link.channels.get(conversation) if self._link is not None else None

    def unacked(self, conversation: ConversationId) -> AbstractSet[EntryId]:
        """Return what the hub is not known to hold: by this link, or else by earlier ones."""
        channel = self.channel(conversation)
        if channel is not None:
            return channel.unacked | channel.refused
        held = self.shelf.get(conversation)
        return self.acks.unacked(held) if held is not None else set()

    def owes(self, conversation: ConversationId) -> bool:
        """Say whether the hub may still ack something; what it refused it never will."""
        channel = self.channel(conversation)
        return bool(self.unacked(conversation) if channel is None else channel.unacked)

    def is_acked(self, conversation: ConversationId, entry: EntryId) -> bool:
        """Say whether the hub has told on this link that it holds `entry` durably."""
        channel = self.channel(conversation)
        return channel is not None and channel.is_open and entry not in self.unacked(conversation)

    # --- inside -----------------------------------------------------------------------

    def _new_link(self, peer: PublicKey | None, now: float) -> Link:
        return Link(Side.CLIENT, key=self.key, peer=peer, shelf=self.shelf, now=now)

    def _open(self, conversation: ConversationId, now: float) -> Effects:
        drafts = self._drafts.get(conversation)
        if self._link is None or drafts is None or self.channel(conversation) is not None:
            return Effects()
        acked = self.acks.positions(conversation)
        return self._link.open(conversation, now, acked=acked, drafts=drafts)

    def _taken(
        self,
        effects: Effects,
        now: float,
        *,
        load: Iterable[ConversationId] = (),
        acked: dict[ConversationId, tuple[Position, ...]] | None = None,
    ) -> ReplicaEffects:
        """Learn from what a link returned, and pass it on."""
        wanted = list(load)
        for event in effects.deliver:
            match event:
                case StateChanged(conversation, SyncState.SYNCHRONIZED):
                    self.epochs.confirm(conversation)
                    self._pauses_s.pop(conversation, None)
                case EntryFailed(conversation, None, _) if self._is_left(conversation):
                    self._reopen_later(conversation, now)
                case Listed(items) if self._hello.follow:
                    new = [i.conversation for i in items if i.conversation not in self._drafts]
                    self._drafts.update(dict.fromkeys(new, True))
                    wanted += new
                case _:
                    pass
        fresh = tuple(c for c in wanted if c not in self._loading)
        self._loading.update(fresh)
        for conversation, positions in (acked or {}).items():
            self.acks.note(conversation, positions)
        return ReplicaEffects(
            effects.persist,
            effects.send,
            effects.deliver,
            self._wake_at(),
            fresh,
            tuple((acked or {}).items()),
        )

    def _drop(self, conversation: ConversationId) -> None:
        self.shelf.remove(conversation)
        self.acks.forget(conversation)
        self.epochs.forget(conversation)

    def _is_left(self, conversation: ConversationId) -> bool:
        is_followed = conversation in self._drafts and self._link is not None
        return is_followed and self.channel(conversation) is None

    def _reopen_later(self, conversation: ConversationId, now: float) -> None:
        pause_s = self._pauses_s.get(conversation, REOPEN_FIRST_S)
        self._pauses_s[conversation] = min(2 * pause_s, REOPEN_MAX_S)
        self._reopen_at[conversation] = now + pause_s

    def _wake_at(self) -> float | None:
        link_at = self._link.wake_at if self._link is not None else None
        due = [*self._reopen_at.values(), *([link_at] if link_at is not None else [])]
        return min(due, default=None)


def _plain(effects: Effects) -> ReplicaEffects:
    return ReplicaEffects(effects.persist, effects.send, effects.deliver)


def _joined(effects: Iterable[Effects]) -> Effects:
    """Return the effects of inputs that one call stands for."""
    all_of = tuple(effects)
    return Effects(
        tuple(entry for one in all_of for entry in one.persist),
        tuple(frame for one in all_of for frame in one.send),
        tuple(event for one in all_of for event in one.deliver),
    )
