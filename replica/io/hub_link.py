"""The live link to one hub: linked again when it drops, its stream, its deadlines (spec/04-link).

Thin driver of replica/link/link.py, whose effects it performs. What is followed is
opened on every new link; without a hub to call there never is one, and
appending works all the same.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Set
from contextlib import suppress

import grpc
import structlog

from replica.conversation import Draft, Shelf
from replica.errors import AntiphonError, StoreError
from replica.ids import ConversationId, EntryId, Position, PublicKey
from replica.io import rpc, status
from replica.io.acks import Acks
from replica.io.hub_calls import HubCalls
from replica.io.performer import Conversations, Performer
from replica.link import (
    Channel,
    Effects,
    EntriesAcked,
    EntriesAdmitted,
    EntryFailed,
    Event,
    Fault,
    Hello,
    Link,
    LinkClosed,
    LinkedHost,
    Listed,
    Message,
    Phase,
    Side,
    StateChanged,
    SyncState,
    Welcomed,
    conversation_of,
    decode_frame,
    encode_frame,
)
from replica.log import Entry
from replica.refusals import ConversationUnknown

log = structlog.get_logger()

RECONNECT_FIRST_S = 0.1
RECONNECT_MAX_S = 5.0
REOPEN_FIRST_S = 1.0
REOPEN_MAX_S = 60.0
"""A followed conversation that either side had to leave is opened again after such pauses."""

_Call = grpc.aio.StreamStreamCall[bytes, bytes]


class HubLink:
    """Keeps the followed conversations in sync with one hub, link after link."""

    def __init__(
        self,
        calls: HubCalls | None,
        hello: Hello,
        *,
        key: PublicKey,
        shelf: Shelf,
        performer: Performer,
        acks: Acks,
        load: Callable[[ConversationId], Awaitable[object]],
        tell: Callable[[Event], None],
    ) -> None:
        """Speak for `key` over `shelf`; `load` puts a stored conversation there.

        `tell` hears every event, after what it speaks of is durable; `load`
        raises ConversationUnknown for what is not stored.
        """
        self.hosts: tuple[LinkedHost, ...] = ()
        """As the last Welcome named them."""
        self.last_error: AntiphonError | None = None
        """Why the last link ended or did not begin; None while the hub answers."""
        self._calls = calls
        self._hello = hello
        self._key = key
        self._shelf = shelf
        self._performer = performer
        self._acks = acks
        self._load = load
        self._tell = tell
        self._link: Link | None = None
        self._outbox: asyncio.Queue[Message] = asyncio.Queue()
        self._followed: dict[ConversationId, bool] = {}
        self._states: dict[ConversationId, SyncState] = {}
        self._pauses_s: dict[ConversationId, float] = {}
        self._wake_at: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin to link, where there is a hub to call; `stop` comes last."""
        if self._calls is not None:
            self._spawn(self._stay_linked(self._calls))

    async def stop(self) -> None:
        """End the link, and link no more."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- what the replica asks for ----------------------------------------------

    async def follow(self, conversation: ConversationId, *, drafts: bool) -> None:
        """Keep a conversation in sync, on this link and all later ones."""
        await self._prepare(conversation)
        if conversation not in self._followed:
            self._followed[conversation] = drafts
            self._open(conversation)

    def unfollow(self, conversation: ConversationId) -> None:
        """Stop syncing a conversation."""
        if self._followed.pop(conversation, None) is not None and self._link is not None:
            self._do(self._link.leave(conversation))

    def append(self, entry: Entry, *, more_follow: bool) -> "asyncio.Future[None]":
        """Admit an entry of our own and send it when linked; the future ends once durable."""
        now = time.monotonic()
        # Without a link, one that goes nowhere: what it would send is found again on reconnect.
        link = self._link or self._new_link(None)
        return self._do(link.append(entry, now, more_follow=more_follow))

    def send_draft(self, draft: Draft) -> None:
        """Stream output to the hub (host); dropped while there is no link."""
        if self._link is not None:
            self._do(self._link.send_draft(draft))

    def abandon(self, conversation: ConversationId, fault: Fault) -> None:
        """Leave a conversation whose last entries the disk refused, and come back to it later."""
        if self._link is not None:
            effects = self._link.leave(conversation)
            for message in effects.send:
                self._outbox.put_nowait(message)
            for event in effects.deliver:
                self._deliver(event)
        self._deliver(EntryFailed(conversation, None, fault))

    # --- what it sees -------------------------------------------------------------

    @property
    def is_up(self) -> bool:
        """Say whether hub and replica have greeted each other."""
        return self._link is not None and self._link.phase is Phase.READY

    @property
    def peer(self) -> PublicKey | None:
        """The key the hub proved; None while there is no link."""
        return self._link.peer if self._link is not None else None

    def state(self, conversation: ConversationId) -> SyncState:
        """Return what is believed of a conversation and the hub."""
        if self._link is None:
            return SyncState.OFFLINE
        return self._states.get(conversation, SyncState.OFFLINE)

    def unacked(self, conversation: ConversationId) -> Set[EntryId]:
        """Return what the hub is not known to hold: by this link, or else by earlier ones."""
        channel = self._channel(conversation)
        if channel is not None:
            return channel.unacked | channel.refused
        held = self._shelf.get(conversation)
        return self._acks.unacked(held) if held is not None else set()

    def owes(self, conversation: ConversationId) -> bool:
        """Say whether the hub may still ack something; what it refused it never will."""
        channel = self._channel(conversation)
        return bool(self.unacked(conversation) if channel is None else channel.unacked)

    def is_acked(self, conversation: ConversationId, entry: EntryId) -> bool:
        """Say whether the hub has told on this link that it holds `entry` durably."""
        channel = self._channel(conversation)
        return channel is not None and channel.is_open and entry not in self.unacked(conversation)

    def _channel(self, conversation: ConversationId) -> Channel | None:
        return self._link.exchange.channels.get(conversation) if self._link is not None else None

    # --- one link after the other ---------------------------------------------------

    async def _stay_linked(self, calls: HubCalls) -> None:
        """Link, and link again with growing pauses, until cancelled."""
        pause_s = RECONNECT_FIRST_S
        while True:
            began = time.monotonic()
            try:
                await self._run_link(calls)
            except AntiphonError as error:
                if self.last_error is None or self.last_error.reason != error.reason:
                    log.info("hub link down", reason=error.reason, detail=error.detail)
                self.last_error = error
                # Also where no link ever was: whoever waits for the hub learns it is not there.
                self._drop_link(Fault.of(error))
            finally:
                self._drop_link()
            if time.monotonic() - began > RECONNECT_MAX_S:
                pause_s = RECONNECT_FIRST_S
            # Spread, so that all clients of a restarted hub do not come at once.
            await asyncio.sleep(pause_s * (0.5 + random.random()))  # noqa: S311  # not a secret
            pause_s = min(2 * pause_s, RECONNECT_MAX_S)

    async def _run_link(self, calls: HubCalls) -> None:
        hub_key, ticket = await calls.authenticate()
        await self._acks.meet(hub_key)
        call: _Call = calls.channel.stream_stream("/antiphon.v1.SyncService/Link")(
            metadata=((rpc.TICKET_METADATA, ticket),)
        )
        outbox = self._outbox = asyncio.Queue()
        link = self._link = self._new_link(hub_key)
        writer = asyncio.create_task(_write_all(call, outbox), name="link writer")
        try:
            async with calls.renewed():
                self._do(link.start(self._hello))
                for conversation in tuple(self._followed):
                    await self._prepare(conversation)
                    self._open(conversation)
                await self._read_all(call, link)
        except grpc.aio.AioRpcError as error:
            raise status.from_rpc_error(error) from error
        finally:
            writer.cancel()
            call.cancel()
            await asyncio.gather(writer, return_exceptions=True)  # the reader tells what is wrong

    def _new_link(self, peer: PublicKey | None) -> Link:
        now = time.monotonic()
        return Link(Side.CLIENT, key=self._key, peer=peer, shelf=self._shelf, now=now)

    async def _read_all(self, call: _Call, link: Link) -> None:
        async for data in call:
            effects = link.receive(decode_frame(data, "to_client"), time.monotonic(), len(data))
            self._do(effects)
            await self._note_acks(effects)
            if link.phase is Phase.CLOSED:
                return
            self.last_error = None

    def _drop_link(self, fault: Fault | None = None) -> None:
        link, self._link = self._link, None
        if link is None and fault is None:
            return
        if link is not None:
            link.handle_disconnect()
        self._wake_link_at(None)

        def perform(_lost: Conversations) -> None:
            for conversation in tuple(self._states):
                self._deliver(StateChanged(conversation, SyncState.OFFLINE))
            self._deliver(LinkClosed(fault))

        # Behind what this link has still to show, which would otherwise have the last word.
        self._performer.submit((), perform, frozenset())

    async def _prepare(self, conversation: ConversationId) -> None:
        """Load what is held of a conversation, so that it is compared and not fetched anew."""
        await self._acks.load(conversation)
        with suppress(ConversationUnknown):  # not held yet: the hub will send it
            await self._load(conversation)

    def _open(self, conversation: ConversationId) -> None:
        drafts = self._followed.get(conversation)
        if self._link is not None and drafts is not None:
            acked = self._acks.positions(conversation)
            self._do(self._link.open(conversation, time.monotonic(), acked=acked, drafts=drafts))

    def _is_left(self, conversation: ConversationId) -> bool:
        return conversation in self._followed and self._channel(conversation) is None

    async def _reopen(self, conversation: ConversationId) -> None:
        pause_s = self._pauses_s.get(conversation, REOPEN_FIRST_S)
        self._pauses_s[conversation] = min(2 * pause_s, REOPEN_MAX_S)
        await asyncio.sleep(pause_s)
        try:
            await self._prepare(conversation)
        except StoreError as error:
            log.warning("could not read it again", reason=error.reason, detail=error.detail)
            self._spawn(self._reopen(conversation))
            return
        if self._is_left(conversation):
            self._open(conversation)

    # --- deadlines --------------------------------------------------------------------

    def _wake_link_at(self, deadline: float | None) -> None:
        if deadline == self._wake_at:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._wake_at = deadline
        if deadline is not None:
            wait_s = max(0.0, deadline - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._handle_deadline)

    def _handle_deadline(self) -> None:
        self._wake_at = self._timer = None
        if self._link is not None:
            self._do(self._link.handle_deadline(time.monotonic()))

    # --- effects ------------------------------------------------------------------------

    def _do(self, effects: Effects) -> "asyncio.Future[None]":
        if self._link is not None:
            self._wake_link_at(effects.wake_at)
        outbox = self._outbox

        def perform(lost: Conversations) -> None:
            for message in effects.send:
                if conversation_of(message) not in lost:
                    outbox.put_nowait(message)
            for event in effects.deliver:
                if conversation_of(event) not in lost:
                    self._deliver(event)

        named = (conversation_of(shown) for shown in (*effects.send, *effects.deliver))
        about = {one for one in named if one is not None}
        return self._performer.submit(effects.persist, perform, about)

    async def _note_acks(self, effects: Effects) -> None:
        """Remember what the hub holds, so that the next link needs 32 bytes to agree."""
        acked: dict[ConversationId, list[Position]] = {}
        for event in effects.deliver:
            match event:
                case EntriesAcked(conversation, positions):
                    acked.setdefault(conversation, []).extend(positions)
                case EntriesAdmitted(conversation, entries):
                    # What the hub sends, it holds.
                    sent = (Position(e.header.lane, e.header.seq, e.id) for e in entries)
                    acked.setdefault(conversation, []).extend(sent)
                case _:
                    pass
        for conversation, durable in acked.items():
            await self._acks.note(conversation, durable)

    def _deliver(self, event: Event) -> None:
        match event:
            case StateChanged(conversation, state):
                self._states[conversation] = state
                if state is SyncState.SYNCHRONIZED:
                    self._pauses_s.pop(conversation, None)
            case EntryFailed(conversation, None, fault) if self._is_left(conversation):
                log.warning("left", reason=fault.reason, detail=fault.detail)
                self._spawn(self._reopen(conversation))
            case EntryFailed(_, entry, fault):
                log.warning("refused", reason=fault.reason, detail=fault.detail, entry=entry)
            case Welcomed(welcome):
                self.hosts = welcome.hosts
            case Listed(items) if self._hello.follow:
                for item in items:
                    self._spawn(self.follow(item.conversation, drafts=True))
            case _:
                pass
        self._tell(event)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _write_all(call: _Call, outbox: "asyncio.Queue[Message]") -> None:
    while True:
        await call.write(encode_frame(await outbox.get(), "to_hub"))
