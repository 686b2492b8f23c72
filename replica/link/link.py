"""Link state machine, both sides (spec/04-link).

Pure: the driver owns sockets, clocks and disks; see replica/io/hub_link.py and
syncd/io/service.py. Inputs are `receive`, `handle_deadline` and the calls of
the application; each returns Effects, which the driver performs in order.

A link moves CONNECTING → READY → CLOSED. On a READY link each conversation has
a Channel: the client opens it with a digest or with lane heads, both sides
send what the other lacks, and from then on entries flow as they are admitted.
Every exchange is idempotent, so a lost, doubled or late message costs a round
trip and nothing else: an Open with heads starts over from what is true now.
"""

from collections.abc import Callable, Iterable
from enum import Enum

from replica import limits
from replica.conversation import Draft, Shelf
from replica.errors import AntiphonError
from replica.ids import ConversationId, EntryId, Position, PublicKey
from replica.limits import VERSION
from replica.link.channel import Channel
from replica.link.effects import Effects, EffectsBuilder
from replica.link.events import LinkClosed, Listed, StateChanged, SyncState, Welcomed
from replica.link.exchange import Exchange, Side
from replica.link.frame import Frame
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
from replica.log import Entry
from replica.refusals import (
    ArgumentInvalid,
    CreditExceeded,
    LinkIdle,
    OutOfOrder,
    PendingFull,
    ProofInvalid,
    VersionUnsupported,
)


class Phase(Enum):
    """Life of a link."""

    CONNECTING = "connecting"
    READY = "ready"
    CLOSED = "closed"


_FROM_CLIENT = (Hello, Open, Entries, Ids, Draft, Credit, Fault, Close, Ping)
_FROM_HUB = (
    Welcome, Opened, Entries, Ids, Draft, Credit, Fault, Close, Pong, Ack, Listing,
)  # fmt: skip
_COUNTED = (Entries, Ids, Draft)


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
        """Start CONNECTING. `peer` is the authenticated key; `entries_max` a hub's quota."""
        self.side = side
        self.key = key
        self.peer = peer
        self.phase = Phase.CONNECTING
        self.follows = False
        self.host: HostInfo | None = None
        self.exchange = Exchange(
            side, shelf, send=self._send, may_create=may_create, entries_max=entries_max
        )
        self._last_received = now
        self._last_beat = now
        self._beat_s = limits.HEARTBEAT_S
        self._sent_bytes = 0
        self._sent_limit = limits.CREDIT_BYTES
        self._received_bytes = 0
        self._received_limit = limits.CREDIT_BYTES
        self._nonce = 0

    def channel(self, conversation: ConversationId) -> Channel | None:
        """Return what is known of a conversation that is open on this link, or being opened."""
        return self.exchange.channels.get(conversation)

    @property
    def wake_at(self) -> float | None:
        """When to call handle_deadline: seconds on the caller's monotonic clock."""
        return self._wake_at()

    # --- inputs of the client's application -------------------------------

    def start(self, hello: Hello) -> Effects:
        """Open the link (client): the first message of the stream."""
        out = EffectsBuilder()
        self._send(hello, out)
        return out.build(self._wake_at())

    def open(
        self,
        conversation: ConversationId,
        now: float,
        *,
        acked: Iterable[Position] = (),
        drafts: bool = True,
    ) -> Effects:
        """Start syncing one conversation (client).

        `acked` are positions this hub is known to hold durably, from an
        earlier link; with nothing else to send, 32 bytes settle the matter.
        """
        out = EffectsBuilder()
        channel = self.exchange.add_channel(conversation, acked, drafts=drafts)
        if self.phase is Phase.READY:
            self.exchange.send_open(channel, out, now, with_heads=bool(channel.unacked))
        return self._finish(out)

    def append(self, entry: Entry, now: float, *, more_follow: bool = False) -> Effects:
        """Admit an entry of our own and send it on (client). Raises EntryRefused.

        With `more_follow` it waits for the next append, to share its frame.
        """
        out = EffectsBuilder()
        self.exchange.append(entry, out, now)
        return out.build(self._wake_at()) if more_follow else self._finish(out)

    def offer(self, conversation: ConversationId, ids: Iterable[EntryId], now: float) -> Effects:
        """Send entries that are new here to the peer, where it has the conversation open."""
        if self.phase is Phase.CLOSED:
            return Effects()
        self.exchange.offer(conversation, ids, now)
        return self._finish(EffectsBuilder())

    def send_draft(self, draft: Draft) -> Effects:
        """Stream output to the hub (host): dropped where the hub can't take it now."""
        channel = self.exchange.channels.get(draft.conversation)
        out = EffectsBuilder()
        is_open = self.phase is Phase.READY and channel is not None and channel.is_open
        if is_open and self._has_credit():
            self._send(draft, out)
        return self._finish(out)

    def offer_drafts(self, conversation: ConversationId, request: EntryId) -> Effects:
        """Tell a reader (hub) that a draft has grown."""
        out = EffectsBuilder()
        channel = self.exchange.channels.get(conversation)
        is_up = self.phase is not Phase.CLOSED
        if is_up and channel is not None and channel.is_open and channel.with_drafts:
            channel.drafts_due.add(request)
        return self._finish(out)

    def list_conversations(self, items: Iterable[ListingItem]) -> Effects:
        """Name conversations to a following client (hub)."""
        out = EffectsBuilder()
        known = tuple(items)
        if self.follows and known:
            self._send(Listing(known), out)
        return self._finish(out)

    def leave(self, conversation: ConversationId, fault: Fault | None = None) -> Effects:
        """Stop syncing one conversation; `fault` says why. Sends nothing else."""
        out = EffectsBuilder()
        if self.exchange.channels.pop(conversation, None) is not None:
            out.deliver.append(StateChanged(conversation, SyncState.OFFLINE))
            if self.phase is Phase.READY:
                self._send(Close(conversation, fault), out)
        return out.build(self._wake_at())

    def close(self, fault: Fault | None = None) -> Effects:
        """End the link in good order; `fault` says why."""
        out = EffectsBuilder()
        if self.phase is not Phase.CLOSED:
            self._send(Close(None, fault), out)
            self._end(out, fault)
        return self._finish(out)

    # --- entries of the peer that wait for others ---------------------------

    @property
    def pending_bytes(self) -> int:
        """Bytes that wait at this link's expense."""
        return self.exchange.intake.pending_bytes

    def has_waited(self, entry_id: EntryId) -> bool:
        """Say whether the peer brought an entry before all that it follows was here."""
        return entry_id in self.exchange.intake.pending

    def settle_pending(self) -> None:
        """Stop charging for what no longer waits, whoever set it free."""
        self.exchange.intake.settle()

    def drop_pending(self) -> Effects:
        """Forget what waits at this link's expense, and say so of each conversation."""
        out = EffectsBuilder()
        for conversation in sorted({c for c, _ in self.exchange.intake.pending.values()}):
            self._send(Fault.of(PendingFull(), conversation), out)
        self.exchange.intake.drop_pending()
        return out.build(self._wake_at())

    # --- inputs of the driver ---------------------------------------------

    def handle_disconnect(self) -> Effects:
        """Take it that the stream is gone: nothing more can be sent."""
        out = EffectsBuilder()
        if self.phase is not Phase.CLOSED:
            self._end(out, None)
        return out.build(None)

    def handle_deadline(self, now: float) -> Effects:
        """Do what is due: beat, re-check what is unacked, end an idle link."""
        out = EffectsBuilder()
        if self.phase is Phase.CLOSED:
            return Effects()
        if now >= self._last_received + limits.IDLE_TIMEOUT_S:
            fault = Fault.of(LinkIdle())
            self._send(Close(None, fault), out)
            self._end(out, fault)
            return self._finish(out)
        if self.side is Side.CLIENT and self.phase is Phase.READY:
            if now >= self._last_beat + self._beat_s:
                self._last_beat = now
                self._beat(out)
                self._verify(self.exchange.channels.values(), out, now)
            self._recheck(out, now)
        return self._finish(out)

    def _beat(self, out: EffectsBuilder) -> None:
        self._nonce += 1
        self._send(Ping(self._nonce, self._sent_bytes), out)

    def _recheck(self, out: EffectsBuilder, now: float) -> None:
        channels = self.exchange.channels.values()
        spoilt = [c for c in channels if c.check_at is not None and now >= c.check_at]
        self._verify(spoilt, out, now)
        due = [c for c in channels if c.recheck_at is not None and now >= c.recheck_at]
        if due:
            self._beat(out)  # a lost grant would make every repair wait for the next beat
        for channel in due:
            if channel.outgoing and not self._has_credit():
                channel.recheck_at = now + limits.RESYNC_S  # it waits for credit, it is not lost
            else:
                self.exchange.recheck(channel, out, now)

    def _has_credit(self) -> bool:
        return self._sent_bytes < self._sent_limit

    def _verify(self, channels: Iterable[Channel], out: EffectsBuilder, now: float) -> None:
        """Compare the digests of conversations believed to be equal (LINK-12)."""
        for channel in channels:
            channel.check_at = None
            if channel.state is SyncState.SYNCHRONIZED and not channel.unacked:
                self.exchange.send_open(channel, out, now, with_heads=False)

    def receive(self, message: Message, now: float, frame_bytes: int = 0) -> Effects:
        """Take one message of the peer; `frame_bytes` is its size on the wire.

        Never raises for what a peer may send: a broken rule becomes a Fault to
        the peer, and where the link can't go on, its end.
        """
        out = EffectsBuilder()
        if self.phase is Phase.CLOSED:
            return Effects()
        self._last_received = now
        allowed = _FROM_CLIENT if self.side is Side.HUB else _FROM_HUB
        try:
            if not isinstance(message, allowed):
                raise OutOfOrder(f"{type(message).__name__} never goes this way")
            if self.phase is Phase.CONNECTING and not isinstance(
                message, (Hello, Welcome, Close, Fault)
            ):
                raise OutOfOrder(f"{type(message).__name__} came before the greeting")
            self._count_received(message, frame_bytes)
            self._dispatch(message, out, now)
        except AntiphonError as error:
            fault = Fault.of(error)
            self._send(Close(None, fault), out)
            self._end(out, fault)
        return self._finish(out)

    def exchange_once(self, message: Entries, now: float) -> Effects:
        """Take entries outside any stream (hub): the core of the unary Push."""
        self.phase = Phase.READY
        return self.receive(message, now)

    def _dispatch(self, message: Message, out: EffectsBuilder, now: float) -> None:
        match message:
            case Hello():
                self._receive_hello(message, out)
            case Welcome():
                self._receive_welcome(message, out, now)
            case Open():
                self.exchange.receive_open(message, self.peer, out)
            case Opened():
                self.exchange.receive_opened(message, out, now)
            case Entries():
                self.exchange.receive_entries(message, self.peer, out, now)
            case Ids():
                self.exchange.receive_ids(message, self.peer, out, now)
            case Ack():
                self.exchange.receive_ack(message, out)
            case Draft():
                self.exchange.receive_draft(message, self.peer, out)
            case Credit(limit_bytes):
                self._sent_limit = max(self._sent_limit, limit_bytes)
            case Fault():
                self.exchange.receive_fault(message, out, now)
            case Close():
                self._receive_close(message, out)
            case Ping(nonce, sent_bytes):
                self._catch_up(sent_bytes)
                self._send(Pong(nonce, self._sent_bytes, self._received_limit), out)
            case Pong(_, sent_bytes, limit_bytes):
                self._sent_limit = max(self._sent_limit, limit_bytes)
                self._catch_up(sent_bytes)
                self._send(Credit(self._received_limit), out)
            case Listing(items):
                out.deliver.append(Listed(items))

    # --- greeting, credit, end --------------------------------------------

    def _receive_hello(self, message: Hello, out: EffectsBuilder) -> None:
        if VERSION not in message.versions:
            raise VersionUnsupported(f"this hub speaks version {VERSION}")
        if self.phase is Phase.READY:
            return  # a doubled Hello
        if message.host is not None:
            self._check_host(message.host)
        self.phase = Phase.READY
        self.follows = message.follow
        self.host = message.host
        # The hub puts the linked hosts in: see Hub.hosts.
        self._send(
            Welcome(
                VERSION,
                self.key,
                limits.FRAME_BYTES_MAX,
                limits.CREDIT_BYTES,
                int(limits.IDLE_TIMEOUT_S * 1000),
            ),
            out,
        )

    def _check_host(self, host: HostInfo) -> None:
        """Bound what every Welcome repeats; nobody speaks for another's key (LINK-25)."""
        if host.key != self.peer:
            raise ArgumentInvalid("host: the key is not the one that authenticated")
        texts = (host.address, *(profile.name for profile in host.profiles))
        if len(host.profiles) > limits.HOST_PROFILES_MAX or any(
            len(text.encode()) > limits.HOST_TEXT_BYTES_MAX for text in texts
        ):
            raise ArgumentInvalid("host: too many profiles, or a text too long")

    def _receive_welcome(self, message: Welcome, out: EffectsBuilder, now: float) -> None:
        if self.phase is Phase.READY:
            return
        if self.peer not in (None, message.hub_key):
            raise ProofInvalid("the hub greets with another key than it proved")
        self.phase = Phase.READY
        self.peer = message.hub_key
        self._sent_limit = message.credit_bytes
        self._beat_s = max(1.0, min(limits.HEARTBEAT_S, message.idle_timeout_ms / 3000))
        out.deliver.append(Welcomed(message))
        for channel in self.exchange.channels.values():
            self.exchange.send_open(channel, out, now, with_heads=bool(channel.unacked))

    def _receive_close(self, message: Close, out: EffectsBuilder) -> None:
        if message.conversation is None:
            self._end(out, message.fault)
            return
        self.exchange.receive_close(message.conversation, message.fault, out)

    def _end(self, out: EffectsBuilder, fault: Fault | None) -> None:
        self.phase = Phase.CLOSED
        self.exchange.intake.drop_pending()
        out.deliver += [StateChanged(c, SyncState.OFFLINE) for c in self.exchange.channels]
        out.deliver.append(LinkClosed(fault))

    def _count_received(self, message: Message, frame_bytes: int) -> None:
        if not isinstance(message, _COUNTED):
            return
        self._received_bytes += frame_bytes
        # Twice the window: a doubled frame is no offence, an endless stream is.
        if self._received_bytes > self._received_limit + limits.CREDIT_BYTES:
            raise CreditExceeded

    def _catch_up(self, sent_bytes: int) -> None:
        """Stop charging for bytes lost on the way; the limit is said again with every beat."""
        if sent_bytes > self._received_limit + limits.CREDIT_BYTES:
            raise CreditExceeded("more bytes are called sent than were ever allowed")
        self._received_bytes = max(self._received_bytes, sent_bytes)
        self._received_limit = self._received_bytes + limits.CREDIT_BYTES

    def _grant(self, out: EffectsBuilder) -> None:
        limit = self._received_bytes + limits.CREDIT_BYTES
        if limit - self._received_limit >= limits.CREDIT_BYTES // 4:
            self._received_limit = limit
            self._send(Credit(limit), out)

    def _send(self, message: Message, out: EffectsBuilder) -> None:
        frame = Frame.of(message, "to_hub" if self.side is Side.CLIENT else "to_client")
        out.send.append(frame)
        if isinstance(message, _COUNTED):
            self._sent_bytes += len(frame.data)

    def _finish(self, out: EffectsBuilder) -> Effects:
        if self.phase is Phase.READY:
            self._grant(out)
            self.exchange.pump(self.peer, out, may_send=self._has_credit)
        return out.build(self._wake_at())

    def _wake_at(self) -> float | None:
        if self.phase is Phase.CLOSED:
            return None
        due = [self._last_received + limits.IDLE_TIMEOUT_S]
        if self.side is Side.CLIENT and self.phase is Phase.READY:
            due.append(self._last_beat + self._beat_s)
            for channel in self.exchange.channels.values():
                due += [at for at in (channel.recheck_at, channel.check_at) if at is not None]
        return min(due)
