"""Link state machine, both sides (spec/04-link, DECISIONS D32).

Pure: the driver owns sockets, clocks and disks; see replica/io/driver/hub_link.py and
syncd/io/service.py. Inputs are `receive`, `handle_deadline` and the calls of
the application; each returns Effects, which the driver performs in order.

A link moves CONNECTING → READY → CLOSED. On a READY link each conversation has
a Channel. The client opens it with a digest or with lane heads, both sides send
the entries the other lacks, and from then on entries are sent as they are
admitted. Every exchange is idempotent, so a lost, doubled or late message costs
a round trip at most: an Open with heads starts over from the present logs.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import partial

from replica import limits
from replica.conversation import Draft, Shelf
from replica.errors import AntiphonError
from replica.ids import ConversationId, EntryId, Position, PublicKey
from replica.link import greeting
from replica.link.channel import Channel
from replica.link.client_side import ClientSide
from replica.link.codec import Direction
from replica.link.credit import FlowControl
from replica.link.effects import NOTHING, Effects, EffectsBuilder
from replica.link.events import LinkClosed, Listed, StateChanged, SyncState, Welcomed
from replica.link.exchange import Side
from replica.link.frame import Frame
from replica.link.heartbeat import Heartbeat
from replica.link.hub_side import HubSide
from replica.link.messages import (
    Ack,
    Close,
    Credit,
    Entries,
    Fault,
    Hello,
    HostInfo,
    Ids,
    Listing,
    ListingItem,
    Message,
    Open,
    Opened,
    Ping,
    Pong,
    Welcome,
)
from replica.link.steps import Steps
from replica.log import Entry
from replica.refusals import LinkIdle, OutOfOrder


class Phase(Enum):
    """The phases of a link."""

    CONNECTING = "connecting"
    READY = "ready"
    CLOSED = "closed"


_AHEAD_BYTES_MAX = limits.OUTBOX_BYTES_MAX // 2
"""Most counted bytes that a client sends ahead of a hub's credit: half of what may be queued."""
_FROM_CLIENT = (Hello, Open, Entries, Ids, Draft, Credit, Fault, Close, Ping)
_FROM_HUB = (
    Welcome, Opened, Entries, Ids, Draft, Credit, Fault, Close, Pong, Ack, Listing,
)  # fmt: skip


class Link:
    """One live sync stream between a replica and a hub."""

    def __init__(
        self,
        side: Side,
        *,
        key: PublicKey,
        peer: PublicKey | None,
        shelf: Shelf,
        now: float,
        may_create: Callable[[PublicKey], bool] = lambda _key: True,
        entries_max: int | None = None,
    ) -> None:
        """Start CONNECTING.

        `peer` is the authenticated key; `entries_max` is a hub's quota per conversation.
        """
        self.side = side
        self.key = key
        self.peer = peer
        self.phase = Phase.CONNECTING
        self.follows = False
        self.host: HostInfo | None = None
        self.flow = FlowControl(_AHEAD_BYTES_MAX if side is Side.CLIENT else None)
        # No part refers to the whole: a link that ends is freed at once, and does not wait for
        # a pass of the garbage collector, which a hub delays (DECISIONS D518).
        self._send = partial(_send, "to_hub" if side is Side.CLIENT else "to_client", self.flow)
        self.exchange: ClientSide | HubSide = (ClientSide if side is Side.CLIENT else HubSide)(
            shelf, send=self._send, may_create=may_create, entries_max=entries_max
        )
        self.channels: Mapping[ConversationId, Channel] = self.exchange.channels
        """The conversations that are open on this link, or being opened."""
        self.intake = self.exchange.intake
        """The pending entries charged to this link."""
        self._heartbeat = Heartbeat(now)

    # --- inputs of the client's application -------------------------------

    def start(self, hello: Hello) -> Effects:
        """Send the first message of the stream (client)."""
        out = EffectsBuilder()
        self._send(hello, out)
        return self._finish(out, pumps=False)

    def open(
        self,
        conversation: ConversationId,
        now: float,
        *,
        acked: Iterable[Position] = (),
        drafts: bool = True,
    ) -> Effects:
        """Start syncing one conversation; compare again where it is open already (client).

        `acked` are positions this hub is known to hold durably from an earlier
        link. If they cover the whole log, a digest of 32 bytes is sent alone.
        """
        assert isinstance(self.exchange, ClientSide), "a client opens conversations"
        out = EffectsBuilder()
        if (known := self.channels.get(conversation)) is not None:
            self.exchange.compare(known, out, now)
            return self._finish(out)
        channel = self.exchange.add_channel(conversation, acked, drafts=drafts)
        if self.phase is Phase.READY:
            self.exchange.send_open(channel, out, now, with_heads=bool(channel.unacked))
        return self._finish(out)

    def append(
        self, entry: Entry, now: float, *, more_follow: bool = False, send: bool = True
    ) -> Effects:
        """Admit an entry of our own and send it on (client). Raises EntryRefused.

        With `more_follow` it is sent with the next append, in one frame. Without `send`
        see `offer`.
        """
        assert isinstance(self.exchange, ClientSide), "a hub writes no entries"
        out = EffectsBuilder()
        self.exchange.append(entry, out, now, send=send)
        return self._finish(out, pumps=not more_follow)

    def offer(
        self,
        conversation: ConversationId,
        ids: Sequence[EntryId],
        now: float,
        *,
        send: bool = True,
        pumps: bool = True,
    ) -> Effects:
        """Send new entries to the peer if it has the conversation open.

        A hub offers what `Log.offered` returns. Without `send` another link of this replica
        sends them, and this one only if the peer lacks them at the next comparison. Unless it
        `pumps`, they are queued until the next input, or `resume`.
        """
        if self.phase is Phase.CLOSED:
            return NOTHING
        # Behind a backlog it waits for the peer's credit: else each append would go on with
        # the backlogs of all its readers.
        is_behind = pumps and self.exchange.is_behind(conversation, self.peer)
        self.exchange.offer(conversation, ids, now, send=send)
        return self._finish(EffectsBuilder(), pumps=not is_behind) if pumps else NOTHING

    def send_draft(self, draft: Draft) -> Effects:
        """Send a draft to the hub (host); it is dropped if it can't be sent now."""
        channel = self.channels.get(draft.conversation)
        out = EffectsBuilder()
        is_open = self.phase is Phase.READY and channel is not None and channel.is_open
        if is_open and self.flow.may_send():
            self._send(draft, out)
        return self._finish(out)

    def offer_drafts(
        self, conversation: ConversationId, request: EntryId, *, pumps: bool = True
    ) -> Effects:
        """Send the new frames of a draft to a reader (hub); `pumps` as for `offer`."""
        channel = self.channels.get(conversation)
        is_up = self.phase is not Phase.CLOSED
        if is_up and channel is not None and channel.is_open and channel.with_drafts:
            channel.drafts_due.add(request)
        if not pumps:
            return NOTHING
        is_behind = self.exchange.is_behind(conversation, self.peer)
        return self._finish(EffectsBuilder(), pumps=not is_behind)

    def list_conversations(self, items: Iterable[ListingItem]) -> Effects:
        """Name conversations to a following client (hub)."""
        out = EffectsBuilder()
        known = tuple(items)
        if self.follows and known:
            self._send(Listing(known), out)
        return self._finish(out)

    def leave(self, conversation: ConversationId, close: Frame | None = None) -> Effects:
        """Stop syncing one conversation. Sends nothing but a Close, or `close`, which says why.

        A hub encodes it once for all links.
        """
        out = EffectsBuilder()
        if self.exchange.channels.pop(conversation, None) is not None:
            out.deliver.append(StateChanged(conversation, SyncState.OFFLINE))
            if self.phase is Phase.READY and close is not None:
                out.send.append(close)
            elif self.phase is Phase.READY:
                self._send(Close(conversation), out)
        return self._finish(out, pumps=False)

    def resume(self, conversation: ConversationId) -> Effects:
        """Send what was passed over while a conversation was off the shelf (hub)."""
        self.exchange.passed_over.discard(conversation)
        return self._finish(EffectsBuilder())

    def drop_pending(self) -> Effects:
        """Drop the pending entries charged to this link, with a fault per conversation (hub)."""
        out = EffectsBuilder()
        self.intake.drop_overflow(out)
        return self._finish(out, pumps=False)

    # --- inputs of the driver ---------------------------------------------

    def handle_disconnect(self) -> Effects:
        """Close the link after its stream ended; sends nothing."""
        out = EffectsBuilder()
        if self.phase is not Phase.CLOSED:
            self._end(out, None)
        return self._finish(out)

    def handle_deadline(self, now: float) -> Effects:
        """Do the work that is due: heartbeat, re-check of unacked entries, end of an idle link."""
        if self.phase is Phase.CLOSED:
            return Effects()
        out, client = EffectsBuilder(), self.exchange
        if now >= self._heartbeat.idle_at:
            fault = Fault.of(LinkIdle())
            self._send(Close(None, fault), out)
            self._end(out, fault)
        elif isinstance(client, ClientSide) and self.phase is Phase.READY:
            if self._heartbeat.begin(now):
                self._send(self._heartbeat.ping(self.flow.sent_bytes), out)
                client.verify(client.channels.values(), out, now)
            due = client.channels.overdue(now)
            client.verify([c for c in due if c.is_check_due(now)], out, now)
            for channel in due:
                channel.postpone_recheck(now)
            overdue = [c for c in due if c.is_overdue(now)]
            if overdue:
                # If a Credit was lost, repair would wait for the next heartbeat.
                self._send(self._heartbeat.ping(self.flow.sent_bytes), out)
            client.repair(overdue, out, now, may_send=self.flow.may_send())
        # A hub continues its backlogs when peers grant credit, not those of all links at once.
        return self._finish(out, pumps=self.side is Side.CLIENT)

    def receive(self, message: Message, now: float, frame_bytes: int = 0) -> Effects:
        """Receive one message of the peer; `frame_bytes` is its encoded size.

        Never raises for any input of a peer: a broken rule becomes a Fault to
        the peer, and ends the link if it concerns the link as a whole.
        """
        out = EffectsBuilder()
        if self.phase is Phase.CLOSED:
            return Effects()
        self._heartbeat.note_received(now)
        allowed = _FROM_CLIENT if self.side is Side.HUB else _FROM_HUB
        try:
            if not isinstance(message, allowed):
                raise OutOfOrder(f"{type(message).__name__} never goes this way")
            if self.phase is Phase.CONNECTING and not isinstance(
                message, (Hello, Welcome, Close, Fault)
            ):
                raise OutOfOrder(f"{type(message).__name__} came before the greeting")
            self.flow.count_received(message, frame_bytes)
            self._dispatch(message, out, now)
        except AntiphonError as error:
            fault = Fault.of(error)
            self._send(Close(None, fault), out)
            self._end(out, fault)
        return self._finish(out)

    def _dispatch(self, message: Message, out: EffectsBuilder, now: float) -> None:
        match message:
            case Hello():
                self._receive_hello(message, out)
            case Welcome():
                self._receive_welcome(message, out, now)
            case Credit(limit_bytes):
                self.flow.extend(limit_bytes)
            case Close(None, fault):
                self._end(out, fault)
            case Ping(nonce, sent_bytes):
                self.flow.catch_up(sent_bytes)
                self._send(Pong(nonce, self.flow.sent_bytes, self.flow.received_limit), out)
            case Pong(_, sent_bytes, limit_bytes):
                self.flow.extend(limit_bytes)
                self.flow.catch_up(sent_bytes)
                self._send(Credit(self.flow.received_limit), out)
            case Listing(items):
                out.deliver.append(Listed(items))
            case _:
                self.exchange.receive(message, self.peer, out, now)

    # --- greeting and end -------------------------------------------------

    def _receive_hello(self, message: Hello, out: EffectsBuilder) -> None:
        if self.phase is Phase.READY:
            return  # a later one has no effect
        greeting.check_versions(message)
        if message.host is not None:
            greeting.check_host(message.host, self.peer)
        self.phase = Phase.READY
        self.follows = message.follow
        self.host = message.host
        self._send(greeting.welcome(self.key), out)

    def _receive_welcome(self, message: Welcome, out: EffectsBuilder, now: float) -> None:
        assert isinstance(self.exchange, ClientSide), "hubs are sent no Welcome"
        if self.phase is Phase.READY:
            return
        greeting.check_hub(message, self.peer)
        self.phase = Phase.READY
        self.peer = message.hub_key
        self.flow.begin(message.credit_bytes)
        self._heartbeat.adopt(message)
        out.deliver.append(Welcomed(message))
        for channel in self.channels.values():
            self.exchange.send_open(channel, out, now, with_heads=bool(channel.unacked))

    def _end(self, out: EffectsBuilder, fault: Fault | None) -> None:
        self.phase = Phase.CLOSED
        self.intake.drop_pending()
        out.deliver += [StateChanged(c, SyncState.OFFLINE) for c in self.channels]
        out.deliver.append(LinkClosed(fault))

    # --- effects ----------------------------------------------------------

    def _finish(self, out: EffectsBuilder, *, pumps: bool = True) -> Effects:
        """Send queued frames if the link is READY and the input `pumps`; build the effects."""
        if pumps and self.phase is Phase.READY:
            limit = self.flow.grant()
            if limit is not None:
                self._send(Credit(limit), out)
            self.exchange.pump(self.peer, out, may_send=self.flow.may_send)
        return out.build(self.wake_at)

    @property
    def wake_at(self) -> float | None:
        """Time to call handle_deadline: seconds on the caller's monotonic clock."""
        if self.phase is Phase.CLOSED:
            return None
        due = [self._heartbeat.idle_at]
        if self.side is Side.CLIENT and self.phase is Phase.READY:
            due.append(self._heartbeat.due_at)
            compare_at = self.exchange.channels.next_deadline()
            due += [compare_at] if compare_at is not None else []
        return min(due)


def _send(direction: Direction, flow: FlowControl, message: Message, out: EffectsBuilder) -> None:
    frame = Frame.of(message, direction)
    out.send.append(frame)
    flow.count_sent(frame)


def prepared(link: Link, message: Message) -> Steps[None]:
    """Do the long part of the work for a hub's next message of a link, in steps.

    `Link.receive` answers without it just as well, in one step.
    """
    if isinstance(link.exchange, HubSide):
        may_send = link.flow.may_send() or isinstance(message, Credit)
        yield from link.exchange.prepare(message, link.peer, may_send=may_send)


def is_walking(link: Link) -> bool:
    """Say whether `prepared` is to be called before any message of a hub's link."""
    return isinstance(link.exchange, HubSide) and link.exchange.is_walking


def is_ready(link: Link, conversation: ConversationId) -> bool:
    """Say whether a hub's link is sent what is new in a conversation as soon as it may be.

    Not so where the conversation is not open, or where much waits for the credit of its peer.
    """
    channel = link.channels.get(conversation)
    if channel is None or not channel.is_open:
        return False
    if channel.backlog is None and not channel.outgoing.is_long:
        return True
    return not link.exchange.is_behind(conversation, link.peer)


def takes_drafts(link: Link, conversation: ConversationId) -> bool:
    """Say whether a hub's link is sent the drafts of a conversation."""
    channel = link.channels.get(conversation)
    return channel is not None and channel.is_open and channel.with_drafts
