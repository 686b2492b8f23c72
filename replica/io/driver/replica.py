"""A replica: a store, a key, and the link to a hub (spec/04-link).

It works offline. Appends are durable locally at once and are sent with the next
link. The rules are in replica/core (DECISIONS D82).
"""

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from replica.conversation import (
    Author,
    Chain,
    Conversation,
    Draft,
    EntryStore,
    MemoryShelf,
    NewEntry,
    Slot,
    StoreEpochs,
)
from replica.core import FollowPolicy, ReplicaCore
from replica.errors import ReplicaClosed
from replica.ids import SALT_BYTES, ConversationId, EntryId, PublicKey
from replica.io.calls import HubCalls
from replica.io.driver.driver import ReplicaDriver
from replica.io.driver.epoch_secret import store_epochs
from replica.io.driver.hub_link import HubLink
from replica.io.driver.hub_status import HubStatus
from replica.io.driver.on_demand import OnDemand
from replica.io.driver.processes import Processes
from replica.io.driver.saved_acks import SavedAcks
from replica.io.driver.shared_store import SharedStore
from replica.io.driver.sharing import delete
from replica.io.driver.writer import Writer
from replica.io.local import is_supported
from replica.io.process import Opening, get_logger
from replica.io.serving import rpc
from replica.io.store import Store, note_own_key
from replica.limits import VERSION
from replica.link import (
    EntriesAdmitted,
    Event,
    Forgotten,
    Hello,
    HostInfo,
    LinkClosed,
)
from replica.log import Body, Conflict, Entry, Genesis, public_key
from replica.refusals import HubUnreachable

log = get_logger()


class Replica:
    """A replica of any number of conversations."""

    def __init__(
        self,
        store: EntryStore,
        key: Ed25519PrivateKey,
        calls: HubCalls | None,
        acks: SavedAcks,
        epochs: StoreEpochs,
        hello: Hello,
        label: str | None,
        policy: FollowPolicy | None,
    ) -> None:
        """Use `Replica.open` instead; without `calls` the replica stays offline."""
        self.store = store
        self.key = key
        self.public = public_key(key)
        self.acks = acks
        self._calls = calls
        self._listeners: list[Callable[[Event], None]] = []
        shelf = MemoryShelf()
        self.shelf: Mapping[ConversationId, Conversation] = shelf
        """The conversations in memory, by id; `load` adds a stored one."""
        self._core = ReplicaCore(
            self.public, hello, shelf, acks.hub, policy, is_own_epoch=epochs.is_own
        )
        self._driver = ReplicaDriver(self._core, store, acks, self._deliver)
        shared = store if isinstance(store, SharedStore) else None
        writer = Writer(self._driver, key, epochs)
        self.processes = Processes(shared, self._driver, writer, self._deliver, label)
        """The other processes on the store, if it is shared."""
        self._new_epoch = writer.new_epoch
        self.wrote = self._core.epochs.wrote
        """Says whether this replica wrote an entry, and no other device of its key."""
        self.follows = self._core.listed.is_used
        """Says whether a conversation is kept in sync, from the call of `follow` on."""
        self._link = HubLink(self._driver, calls) if calls is not None else None
        self.hub = HubStatus(
            self._core, self._link, self._driver.endings, self._driver.do, self._deliver
        )
        """The state of the link and of each conversation on it."""
        self.loop = asyncio.get_running_loop()
        """The event loop of all calls."""
        self.is_closed = False
        """Whether the end of the replica has begun: what is under way is finished, and no more."""
        self._waiting: set[asyncio.Future[None]] = set()
        self.on_demand = OnDemand(self._driver, self.hub, self.wait_for)
        """The conversations that the hub lists."""

    @classmethod
    def open(
        cls,
        store_path: Path,
        key: Ed25519PrivateKey,
        hub_address: str | None = None,
        *,
        hub_key: PublicKey | None = None,
        follow: bool | FollowPolicy = False,
        host: HostInfo | None = None,
        shared: bool = False,
        label: str | None = None,
    ) -> "Opening[Replica]":
        """Open the store and start linking to the hub; closes both at the end.

        `hub_key` is the key that the hub must prove, None for the one pinned. With `shared`
        other processes that say so may open the store at the same time; `label` names this one
        to them, and in the messages it writes. `follow` opens the conversations that the hub
        lists, with a policy those that it names. Raises StoreLocked, StoreVersionUnknown,
        ArgumentInvalid. An unreachable hub is no error.
        """

        async def enter(stack: AsyncExitStack) -> "Replica":
            public = public_key(key)
            store: Store | SharedStore
            if shared and is_supported():
                store = await SharedStore.open(store_path, public, label)
            else:
                store = await Store.open(store_path)
            stack.push_async_exit(store)
            await note_own_key(store, public)
            acks = await SavedAcks.of_hub(store, hub_address)
            calls = None
            if hub_address is not None:
                calls = HubCalls(hub_address, key, store, hub_key)
            policy = follow if isinstance(follow, FollowPolicy) else None
            hello = Hello((VERSION,), follow=bool(follow), host=host)
            epochs = await store_epochs(store)
            replica = cls(store, key, calls, acks, epochs, hello, label, policy)
            replica._driver.start()
            await replica.processes.start()
            if replica._link is not None:
                replica._link.start(lambda: bool(replica._waiting))

            async def close() -> None:
                replica.is_closed = True
                for met in [one for one in replica._waiting if not one.done()]:
                    met.set_exception(ReplicaClosed())
                await replica.processes.stop()
                if replica._link is not None:
                    await replica._link.stop()
                await replica._driver.stop()
                if calls is not None:
                    await calls.close()
                replica._deliver(LinkClosed())  # whoever waits looks once more

            stack.push_async_callback(close)
            return replica

        return Opening(enter)

    # --- conversations --------------------------------------------------------

    async def load(self, conversation: ConversationId) -> Conversation:
        """Return a conversation, loaded from the store if necessary. Raises ConversationUnknown."""
        return await self._driver.load(conversation)

    async def follow(self, conversation: ConversationId, *, drafts: bool = True) -> None:
        """Keep a conversation in sync while this replica runs, also if this call is cancelled."""
        self._driver.do(self._core.follow(conversation, time.monotonic(), drafts=drafts))
        await self._driver.loading(conversation)

    def unfollow(self, conversation: ConversationId) -> None:
        """Stop syncing a conversation; one of which nothing is held leaves memory."""
        self._driver.unfollow(conversation)

    async def delete(self, conversation: ConversationId) -> None:
        """Delete a conversation from this replica."""
        await delete(self._driver, self.store, conversation)

    async def flush(self) -> None:
        """Wait until all that is in memory is durable and delivered. Raises StoreError."""
        await self._driver.flush()

    async def keep(self, held: Conversation, new: tuple[Entry, ...]) -> None:
        """Put a conversation on the shelf and make entries admitted to it durable."""
        await self._driver.keep(held, new)

    # --- appending --------------------------------------------------------------

    async def create(self, body: Genesis) -> ConversationId:
        """Begin a conversation and follow it; its id is the id of the genesis entry."""
        author = Author(self.key, self._new_epoch())
        entry = author.genesis(body, salt=os.urandom(SALT_BYTES), time_ms=rpc.now_ms())
        conversation = ConversationId(entry.id)
        self._core.epochs.begin(conversation, author.epoch)
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
        conflict: Conflict = Conflict.QUEUE,
    ) -> Entry:
        """Write, sign and store one entry; return once it is durable locally.

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
        conflict: Conflict = Conflict.QUEUE,
    ) -> tuple[Entry, ...]:
        """Append entries, each following the one before, with one fsync, frame and ack.

        A message and its request are one chain (DECISIONS D25). `conflict` applies
        to a request among them and to no other kind.
        """
        labelled = (self.processes.labelled(body) for body in bodies)
        new = tuple(NewEntry(body, os.urandom(SALT_BYTES)) for body in labelled)
        return await self.processes.write(conversation, Chain(new, parents, basis, conflict))

    async def append_at(
        self, conversation: ConversationId, slot: Slot, body: Body, *, parents: tuple[EntryId, ...]
    ) -> Entry:
        """Append an entry that is void at any other place of its lane than `slot`.

        Raises LaneMoved if another process has written there meanwhile.
        """
        new = (NewEntry(body, os.urandom(SALT_BYTES)),)
        (entry,) = await self.processes.write(conversation, Chain(new, parents, slot=slot))
        return entry

    async def append_entry(self, entry: Entry) -> None:
        """Admit a signed entry of our own; return once it is durable locally."""
        await self._driver.append(entry, more_follow=False)

    def send_draft(self, draft: Draft) -> bool:
        """Send a draft to the hub (hosts only); False where it is dropped.

        That is without a link, and while the hub has given no credit.
        """
        effects = self._core.send_draft(draft)
        self._driver.do(effects)
        return any(frame.message is draft for frame in effects.send)

    # --- events -----------------------------------------------------------------------

    def listen(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Call `listener` with every event from now on; return a function that stops it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def wait_for(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until `condition` holds, checked after every event; False after the timeout.

        Raises ReplicaClosed as soon as the end of the replica has begun.
        """
        if condition():
            return True
        if self.is_closed:
            raise ReplicaClosed
        met: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def look(_event: Event) -> None:
            if met.done():
                return
            try:
                if condition():
                    met.set_result(None)
            except Exception as error:  # noqa: BLE001  # it is raised at the waiting caller
                met.set_exception(error)

        stop = self.listen(look)
        self._waiting.add(met)
        if self._link is not None:
            self._link.go_on()
        try:
            async with asyncio.timeout(timeout_s):
                await met
        except TimeoutError:
            return condition()
        finally:
            stop()
            self._waiting.discard(met)
        return True

    async def wait_synced(self, conversation: ConversationId, timeout_s: float = 20.0) -> bool:
        """Wait until the replica holds what the hub holds now, and the hub what the replica holds.

        False after the timeout; at once if only entries that the hub refused for good are left,
        if it takes nothing of the conversation ever again, or once it was deleted here. Raises
        ReplicaClosed, StoreError.
        """
        if self.is_closed:
            raise ReplicaClosed
        end = time.monotonic() + timeout_s
        since, is_whole, may_be_gone = self.hub.compare(conversation), False, False

        def note(event: Event) -> None:
            nonlocal may_be_gone
            may_be_gone = may_be_gone or event == Forgotten(conversation)

        def is_decided() -> bool:
            nonlocal is_whole
            if may_be_gone or self.hub.ending(conversation) is not None:
                return True
            if not self.hub.is_in_sync(conversation, since):
                return False
            # Now: more may be written before the wait ends.
            is_whole = not self.hub.unsynced(conversation)
            return True

        stop = self.listen(note)
        try:
            while await self.wait_for(is_decided, end - time.monotonic()):
                if not may_be_gone:
                    return is_whole
                may_be_gone = False
                if not await self.store.has(conversation):  # else it only left memory
                    return False
        finally:
            stop()
        return False

    def calls(self) -> HubCalls:
        """Return the hub's unary calls. Raises HubUnreachable without a hub address."""
        if self._calls is None:
            raise HubUnreachable("no hub address is configured")
        return self._calls

    # --- events and failures ------------------------------------------------------

    async def failed(self) -> None:
        """Raise the error that ended the task that makes appends durable, or that of the link.

        Waits for ever while both run.
        """
        vital = [self._driver.failed()]
        if self._link is not None:
            vital.append(self._link.failed())
        await asyncio.gather(*vital)

    def _deliver(self, event: Event) -> None:
        if isinstance(event, EntriesAdmitted):
            self.processes.announce(event.conversation, event.entries)
        self.hub.receive(event)
        for listener in tuple(self._listeners):
            try:
                listener(event)
            except Exception:  # an application's error must not stop the driver
                log.exception("a listener failed", kind=type(event).__name__)
