"""A replica: store, key and one link to a hub (spec/04-link).

Thin driver of replica/link.py. It works without the hub: appends are durable
here at once and go on the wire when the link is up again.
"""

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import grpc
import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from replica.aio import rpc, status
from replica.aio.hub_calls import HubCalls
from replica.aio.performer import Performer, Work
from replica.aio.serving import require_loopback
from replica.aio.store import Store
from replica.author import Author
from replica.body import Body, Genesis
from replica.codec.frames import decode_frame, encode_frame
from replica.conversation import Conversation, Shelf
from replica.effects import (
    Draft,
    Effects,
    EntriesAcked,
    EntriesAdmitted,
    EntryFailed,
    Event,
    Fault,
    Hello,
    HostInfo,
    LinkClosed,
    Listed,
    Message,
    StateChanged,
    SyncState,
    Welcomed,
)
from replica.entry import Conflict, Entry
from replica.errors import AntiphonError, StoreError
from replica.exchange import Side
from replica.ids import SALT_BYTES, ConversationId, EntryId, PublicKey
from replica.link import VERSION, Link, Phase
from replica.refusals import ConversationUnknown, HubUnreachable

log = structlog.get_logger()

RECONNECT_FIRST_S = 0.1
RECONNECT_MAX_S = 5.0
REOPEN_S = 1.0
"""A conversation the hub closed for a retryable reason is opened again after this."""


class Client:
    """One replica of any number of conversations."""

    def __init__(
        self,
        store: Store,
        key: Ed25519PrivateKey,
        hub_address: str | None,
        *,
        follow: bool = False,
        host: HostInfo | None = None,
    ) -> None:
        """Use `Client.open` instead; `hub_address` None works offline only."""
        self.store = store
        self.key = key
        self.public = PublicKey(key.public_key().public_bytes_raw())
        self.shelf: Shelf = {}
        self.hosts: tuple[HostInfo, ...] = ()
        self.last_error: AntiphonError | None = None
        self._hub_address = hub_address
        self._follow = follow
        self._host = host
        self._link: Link | None = None
        self._outbox: asyncio.Queue[Message | None] = asyncio.Queue()
        self._authors: dict[ConversationId, Author] = {}
        self._wanted: dict[ConversationId, bool] = {}
        self._states: dict[ConversationId, SyncState] = {}
        self._listeners: list[Callable[[Event], None]] = []
        self._performer = Performer(store, self._undo)
        self._tasks: list[asyncio.Task[None]] = []
        self._background: set[asyncio.Task[None]] = set()
        self._deadline_moved = asyncio.Event()
        self._wake_at: float | None = None
        self._calls: HubCalls | None = None

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        store_path: Path,
        key: Ed25519PrivateKey,
        hub_address: str | None = None,
        *,
        follow: bool = False,
        host: HostInfo | None = None,
    ) -> "AsyncIterator[Client]":
        """Open the store and start linking to the hub; closes both at the end.

        Raises StoreLocked, StoreVersionUnknown. An unreachable hub is no error.
        """
        if hub_address is not None:
            require_loopback(hub_address)
        store = await Store.open(store_path)
        client = cls(store, key, hub_address, follow=follow, host=host)
        try:
            client._performer.start()
            if hub_address is not None:
                client._tasks.append(asyncio.create_task(client._stay_linked(), name="link"))
                client._tasks.append(asyncio.create_task(client._keep_time(), name="deadlines"))
            yield client
        finally:
            await client._close()
            await store.close()

    async def _close(self) -> None:
        for task in (*self._tasks, *self._background):
            task.cancel()
        await asyncio.gather(*self._tasks, *self._background, return_exceptions=True)
        await self._performer.stop()
        if self._calls is not None:
            await self._calls.close()

    # --- conversations --------------------------------------------------------

    async def load(self, conversation: ConversationId) -> Conversation:
        """Return a conversation held here. Raises ConversationUnknown."""
        held = self.shelf.get(conversation)
        if held is None:
            entries = await self.store.load(conversation)
            held = self.shelf.get(conversation)
            if held is None:
                if not entries:
                    raise ConversationUnknown(f"{conversation.hex()[:12]} is not held here")
                held = self.shelf[conversation] = Conversation.restore(conversation, entries)
        return held

    async def follow(self, conversation: ConversationId, *, drafts: bool = True) -> None:
        """Keep a conversation in sync for as long as this client runs."""
        if conversation in self._wanted:
            return
        with suppress(ConversationUnknown):  # not held yet: the hub will send it
            await self.load(conversation)
        self._wanted[conversation] = drafts
        await self._open_channel(conversation)

    async def _open_channel(self, conversation: ConversationId) -> None:
        link = self._link
        if link is None or conversation not in self._wanted:
            return
        acked, _ = await self.store.load_acks(conversation, link.peer or PublicKey(b""))
        if link is self._link:
            drafts = self._wanted[conversation]
            self._do(link.open(conversation, time.monotonic(), acked=acked, drafts=drafts))

    def unfollow(self, conversation: ConversationId) -> None:
        """Stop syncing a conversation."""
        if self._wanted.pop(conversation, None) is not None and self._link is not None:
            self._do(self._link.leave(conversation))

    async def delete(self, conversation: ConversationId) -> None:
        """Delete a conversation from this replica."""
        self.unfollow(conversation)
        self.shelf.pop(conversation, None)
        await self._performer.flush()
        await self.store.delete(conversation)

    # --- appending --------------------------------------------------------------

    async def create(self, body: Genesis) -> ConversationId:
        """Begin a conversation and follow it; its id is the genesis entry's."""
        author = Author(self.key, _random_epoch())
        entry = author.genesis(body, salt=os.urandom(SALT_BYTES), time_ms=rpc.now_ms())
        conversation = ConversationId(entry.id)
        self._authors[conversation] = author
        await self.append_entry(entry)
        await self.follow(conversation)
        return conversation

    async def append(
        self,
        conversation: ConversationId,
        body: Body,
        *,
        parents: tuple[EntryId, ...],
        basis: EntryId | None = None,
        conflict: Conflict = Conflict.FORK,
    ) -> Entry:
        """Write, sign and store one entry; durable here when it returns, sent when linked.

        Raises StoreFull, BodyTooLarge, CriticalKindUnknown.
        """
        (entry,) = await self.append_chain(
            conversation, (body,), parents=parents, basis=basis, conflict=conflict
        )
        return entry

    async def append_chain(
        self,
        conversation: ConversationId,
        bodies: Sequence[Body],
        *,
        parents: tuple[EntryId, ...],
        basis: EntryId | None = None,
        conflict: Conflict = Conflict.FORK,
    ) -> tuple[Entry, ...]:
        """Append entries, each following the one before: one fsync, one frame, one ack."""
        held = await self.load(conversation)
        written: list[Entry] = []
        durable = []
        for number, body in enumerate(bodies):
            entry = self.author(held).write(
                held,
                body,
                parents=parents,
                basis=basis,
                conflict=conflict,
                salt=os.urandom(SALT_BYTES),
                time_ms=rpc.now_ms(),
            )
            durable.append(self._admit(entry, more_follow=number + 1 < len(bodies)))
            written.append(entry)
            parents = (entry.id,)
        await asyncio.gather(*durable)
        return tuple(written)

    async def append_entry(self, entry: Entry) -> None:
        """Admit a signed entry of our own; returns once it is durable here."""
        await self._admit(entry)

    def _admit(self, entry: Entry, *, more_follow: bool = False) -> "asyncio.Future[None]":
        now = time.monotonic()
        # Without a link, one that goes nowhere: what it would send is found again on reconnect.
        link = self._link or Link(
            Side.CLIENT, key=self.public, peer=None, shelf=self.shelf, now=now
        )
        return self._do(link.append(entry, now, more_follow=more_follow))

    async def keep(self, held: Conversation, entries: tuple[Entry, ...]) -> None:
        """Put a conversation on the shelf and make entries admitted to it durable."""
        self.shelf[held.id] = held
        await self._do(Effects(persist=entries))

    def author(self, held: Conversation) -> Author:
        """Return the author for the next entry (spec/02-entry §7).

        The newest epoch goes on only where the hub has confirmed all we hold
        since the store was opened; else a new one begins.
        """
        known = self._authors.get(held.id)
        if known is not None and not _is_forked(held, known):
            return known
        epoch = _random_epoch()
        own = [e for e in held.log.entries.values() if e.header.author == self.public]
        if own and known is None and self.state(held.id) is SyncState.SYNCHRONIZED:
            newest = max(own, key=lambda e: e.order_key)
            candidate = Author(self.key, newest.header.epoch)
            if not _is_forked(held, candidate):
                epoch = newest.header.epoch
        author = self._authors[held.id] = Author(self.key, epoch)
        return author

    def send_draft(self, draft: Draft) -> None:
        """Stream output to the hub (host); dropped while there is no link."""
        if self._link is not None:
            self._do(self._link.send_draft(draft))

    # --- looking on -----------------------------------------------------------------

    def state(self, conversation: ConversationId) -> SyncState:
        """Return what is believed of a conversation and the hub."""
        return self._states.get(conversation, SyncState.OFFLINE)

    @property
    def is_linked(self) -> bool:
        """Say whether the link is up."""
        return self._link is not None and self._link.phase is Phase.READY

    @property
    def hub_key(self) -> PublicKey | None:
        """The key the hub proved, once linked."""
        return self._link.peer if self._link is not None else None

    def unsynced(self, conversation: ConversationId) -> int:
        """Count entries the hub is not known to hold; all of them while unlinked and unasked."""
        channel = self._link.exchange.channels.get(conversation) if self._link else None
        return len(channel.unacked) if channel is not None else 0

    def is_acked(self, conversation: ConversationId, entry: EntryId) -> bool:
        """Say whether the hub is known to hold `entry` durably."""
        channel = self._link.exchange.channels.get(conversation) if self._link else None
        return channel is not None and channel.is_open and entry not in channel.unacked

    def listen(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Call `listener` with every event from now on; returns how to stop."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def wait_for(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until `condition` holds, looking after every event; False after the timeout."""
        if condition():
            return True
        met = asyncio.Event()
        stop = self.listen(lambda _event: met.set() if condition() else None)
        try:
            async with asyncio.timeout(timeout_s):
                await met.wait()
        except TimeoutError:
            return condition()
        finally:
            stop()
        return True

    async def wait_synced(self, conversation: ConversationId, timeout_s: float = 20.0) -> bool:
        """Wait until the hub holds all we hold and the reverse; False after the timeout."""

        def settled() -> bool:
            synced = self.state(conversation) is SyncState.SYNCHRONIZED
            return synced and not self.unsynced(conversation)

        return await self.wait_for(settled, timeout_s)

    def calls(self) -> HubCalls:
        """Return the hub's unary calls. Raises HubUnreachable where there is no hub address."""
        if self._hub_address is None:
            raise HubUnreachable("no hub address is configured")
        if self._calls is None:
            self._calls = HubCalls(self._hub_address, self.key, self.store)
        return self._calls

    # --- the link ---------------------------------------------------------------------

    async def _stay_linked(self) -> None:
        """Link, and link again with growing pauses, until cancelled."""
        pause_s = RECONNECT_FIRST_S
        while True:
            began = time.monotonic()
            try:
                await self._run_link()
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

    async def _run_link(self) -> None:
        calls = self.calls()
        hub_key, ticket = await calls.authenticate()
        call = calls.channel.stream_stream("/antiphon.v1.SyncService/Link")(
            metadata=((rpc.TICKET_METADATA, ticket),)
        )
        outbox: asyncio.Queue[Message | None] = asyncio.Queue()
        self._outbox = outbox
        link = self._link = Link(
            Side.CLIENT, key=self.public, peer=hub_key, shelf=self.shelf, now=time.monotonic()
        )
        writer = asyncio.create_task(_write_all(call, outbox), name="link writer")
        try:
            self._do(link.start(Hello((VERSION,), follow=self._follow, host=self._host)))
            for conversation in tuple(self._wanted):
                await self._open_channel(conversation)
            await self._read_all(call, link)
        except grpc.aio.AioRpcError as error:
            raise status.from_rpc_error(error) from error
        finally:
            writer.cancel()
            call.cancel()

    async def _read_all(self, call: "grpc.aio.StreamStreamCall[bytes, bytes]", link: Link) -> None:
        async for data in call:
            message = decode_frame(data, "to_client")
            conversation = getattr(message, "conversation", None)
            if conversation in self._wanted and conversation not in self.shelf:
                with suppress(ConversationUnknown):
                    await self.load(conversation)
            self._do(link.receive(message, time.monotonic(), len(data)))
            if link.phase is Phase.CLOSED:
                return
            self.last_error = None

    def _drop_link(self, fault: Fault | None = None) -> None:
        link, self._link = self._link, None
        if link is None and fault is None:
            return
        if link is not None:
            link.handle_disconnect()
        for conversation in tuple(self._states):
            self._deliver(StateChanged(conversation, SyncState.OFFLINE))
        self._deliver(LinkClosed(fault))

    async def _keep_time(self) -> None:
        while True:
            self._deadline_moved.clear()
            wait_s = None if self._wake_at is None else max(0.0, self._wake_at - time.monotonic())
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._deadline_moved.wait()
                continue
            self._wake_at = None
            if self._link is not None:
                self._do(self._link.handle_deadline(time.monotonic()))

    # --- effects ------------------------------------------------------------------------

    def _do(self, effects: Effects) -> "asyncio.Future[None]":
        if effects.wake_at is not None and effects.wake_at != self._wake_at:
            self._wake_at = effects.wake_at
            self._deadline_moved.set()
        outbox = self._outbox

        def perform() -> None:
            for message in effects.send:
                outbox.put_nowait(message)
            for event in effects.deliver:
                self._deliver(event)

        return self._performer.submit(effects.persist, perform)

    def _deliver(self, event: Event) -> None:
        match event:
            case StateChanged(conversation, state):
                self._states[conversation] = state
                if state is SyncState.SYNCHRONIZED:
                    self._spawn(self._save_acks(conversation))
            case EntriesAcked(conversation) | EntriesAdmitted(conversation):
                # What came from the hub moves its heads too.
                self._spawn(self._save_acks(conversation))
            case EntryFailed(conversation, None, fault) if fault.retryable:
                self._spawn(self._reopen(conversation))
            case EntryFailed(_, entry, fault):
                log.warning("refused", reason=fault.reason, detail=fault.detail, entry=entry)
            case Welcomed(welcome):
                self.hosts = welcome.hosts
            case Listed(items) if self._follow:
                for item in items:
                    self._spawn(self.follow(item.conversation))
            case _:
                pass
        for listener in tuple(self._listeners):
            listener(event)

    async def _save_acks(self, conversation: ConversationId) -> None:
        """Remember what the hub holds, so that the next link needs 32 bytes to agree."""
        link, held = self._link, self.shelf.get(conversation)
        channel = link.exchange.channels.get(conversation) if link is not None else None
        if link is None or link.peer is None or held is None or channel is None:
            return
        if not channel.unacked:
            await self.store.save_acks(conversation, link.peer, held.log.heads(), rpc.now_ms())

    async def _reopen(self, conversation: ConversationId) -> None:
        await asyncio.sleep(REOPEN_S)
        await self._open_channel(conversation)

    def _spawn(self, work: "asyncio.Future[None] | object") -> None:
        task: asyncio.Task[None] = asyncio.create_task(work)  # type: ignore[arg-type]  # coroutines
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _undo(self, error: StoreError, lost: set[ConversationId], _batch: list[Work]) -> None:
        """Take conversations off the shelf whose last entries the disk refused."""
        for conversation in lost:
            self.shelf.pop(conversation, None)
            self._authors.pop(conversation, None)
            if self._link is not None:
                for message in self._link.leave(conversation).send:
                    self._outbox.put_nowait(message)
            self._deliver(EntryFailed(conversation, None, Fault.of(error, conversation)))


async def _write_all(
    call: "grpc.aio.StreamStreamCall[bytes, bytes]", outbox: "asyncio.Queue[Message | None]"
) -> None:
    while (message := await outbox.get()) is not None:
        await call.write(encode_frame(message, "to_hub"))


def _random_epoch() -> int:
    return int.from_bytes(os.urandom(8), "little") or 1


def _is_forked(held: Conversation, author: Author) -> bool:
    lanes = (lane for lane in held.log.lanes() if lane.epoch == author.epoch)
    return any(len(held.log.lane_tips(lane)) > 1 for lane in lanes if lane.author == author.public)
