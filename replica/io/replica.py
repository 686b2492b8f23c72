"""A replica: store, key and what is done with them (spec/04-link).

It works without the hub: appends are durable here at once, and hub_link.py
sends them when it is linked again.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from replica.conversation import Author, Conversation, Draft, Shelf
from replica.errors import AntiphonError, StoreError
from replica.ids import SALT_BYTES, ConversationId, EntryId, PublicKey
from replica.io import rpc
from replica.io.acks import Acks
from replica.io.hub_calls import HubCalls
from replica.io.hub_link import HubLink
from replica.io.performer import Conversations, Performer
from replica.io.serving import require_loopback
from replica.io.store import Store
from replica.link import VERSION, Event, Fault, Hello, HostInfo, LinkedHost, SyncState
from replica.log import Body, Conflict, Entry, Genesis, Request
from replica.refusals import ConversationUnknown, HubUnreachable

log = structlog.get_logger()


class Client:
    """One replica of any number of conversations."""

    def __init__(
        self,
        store: Store,
        key: Ed25519PrivateKey,
        calls: HubCalls | None,
        acks: Acks,
        hello: Hello,
    ) -> None:
        """Use `Client.open` instead; without `calls` it works offline only."""
        self.store = store
        self.key = key
        self.public = PublicKey(key.public_key().public_bytes_raw())
        self.shelf: Shelf = {}
        self.acks = acks
        self._calls = calls
        self._authors: dict[ConversationId, Author] = {}
        self._listeners: list[Callable[[Event], None]] = []
        self._performer = Performer(store, self._undo)
        self._link = HubLink(
            calls,
            hello,
            key=self.public,
            shelf=self.shelf,
            performer=self._performer,
            acks=acks,
            load=self.load,
            tell=self._tell,
        )

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
        async with await Store.open(store_path) as store:
            acks = await Acks.of_hub(store, hub_address)
            calls = HubCalls(hub_address, key, store) if hub_address is not None else None
            client = cls(store, key, calls, acks, Hello((VERSION,), follow=follow, host=host))
            client._performer.start()
            client._link.start()
            try:
                yield client
            finally:
                await client._close()

    async def _close(self) -> None:
        await self._link.stop()
        await self._performer.stop()
        if self._calls is not None:
            await self._calls.close()

    # --- conversations --------------------------------------------------------

    async def load(self, conversation: ConversationId) -> Conversation:
        """Return a conversation held here. Raises ConversationUnknown."""
        held = self.shelf.get(conversation)
        if held is None:
            await self.acks.load(conversation)
            entries = await self.store.load(conversation)
            held = self.shelf.get(conversation)
            if held is None:
                if not entries:
                    raise ConversationUnknown(f"{conversation.hex()[:12]} is not held here")
                held = self.shelf[conversation] = Conversation.restore(conversation, entries)
        return held

    async def follow(self, conversation: ConversationId, *, drafts: bool = True) -> None:
        """Keep a conversation in sync for as long as this client runs."""
        await self._link.follow(conversation, drafts=drafts)

    def unfollow(self, conversation: ConversationId) -> None:
        """Stop syncing a conversation."""
        self._link.unfollow(conversation)

    async def delete(self, conversation: ConversationId) -> None:
        """Delete a conversation from this replica."""
        self.unfollow(conversation)
        self.shelf.pop(conversation, None)
        self.acks.forget(conversation)
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
        conflict: Conflict = Conflict.QUEUE,
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
        conflict: Conflict = Conflict.QUEUE,
    ) -> tuple[Entry, ...]:
        """Append entries, each following the one before: one fsync, one frame, one ack.

        `conflict` is for a request among them; it means nothing in other kinds.
        """
        held = await self.load(conversation)
        written: list[Entry] = []
        durable = []
        for number, body in enumerate(bodies):
            entry = self.author(held).write(
                held,
                body,
                parents=parents,
                basis=basis,
                conflict=conflict if isinstance(body, Request) else Conflict.QUEUE,
                salt=os.urandom(SALT_BYTES),
                time_ms=rpc.now_ms(),
            )
            durable.append(self._link.append(entry, more_follow=number + 1 < len(bodies)))
            written.append(entry)
            parents = (entry.id,)
        await asyncio.gather(*durable)
        return tuple(written)

    async def append_entry(self, entry: Entry) -> None:
        """Admit a signed entry of our own; returns once it is durable here."""
        await self._link.append(entry, more_follow=False)

    async def keep(self, held: Conversation, entries: tuple[Entry, ...]) -> None:
        """Put a conversation on the shelf and make entries admitted to it durable."""
        await self.acks.load(held.id)
        self.shelf[held.id] = held
        await self._performer.submit(entries, lambda _lost: None)

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
        self._link.send_draft(draft)

    # --- looking on -----------------------------------------------------------------

    def state(self, conversation: ConversationId) -> SyncState:
        """Return what is believed of a conversation and the hub."""
        return self._link.state(conversation)

    @property
    def is_linked(self) -> bool:
        """Say whether the link is up."""
        return self._link.is_up

    @property
    def hub_key(self) -> PublicKey | None:
        """The key the hub proved, once linked."""
        return self._link.peer

    @property
    def hosts(self) -> tuple[LinkedHost, ...]:
        """The model hosts that were linked to the hub when it last welcomed us, in its order.

        As fresh as that Welcome: one that has come or gone since shows with the next link.
        """
        return self._link.hosts

    @property
    def last_error(self) -> AntiphonError | None:
        """Why there is no link; None while the hub answers."""
        return self._link.last_error

    def unsynced(self, conversation: ConversationId) -> int:
        """Count entries of a loaded conversation that the hub is not known to hold durably.

        While linked, as the link has it; else by the acks of earlier links,
        those of any hub where no hub is configured.
        """
        return len(self._link.unacked(conversation))

    def is_acked(self, conversation: ConversationId, entry: EntryId) -> bool:
        """Say whether the hub has told on this link that it holds `entry` durably."""
        return self._link.is_acked(conversation, entry)

    def listen(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Call `listener` with every event from now on; returns how to stop."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def wait_for(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until `condition` holds, looking after every event; False after the timeout."""
        if condition():
            return True
        met: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def look(_event: Event) -> None:
            if met.done():
                return
            try:
                if condition():
                    met.set_result(None)
            except Exception as error:  # noqa: BLE001  # whoever set the condition is told
                met.set_exception(error)

        stop = self.listen(look)
        try:
            async with asyncio.timeout(timeout_s):
                await met
        except TimeoutError:
            return condition()
        finally:
            stop()
        return True

    async def wait_synced(self, conversation: ConversationId, timeout_s: float = 20.0) -> bool:
        """Wait until the hub holds all we hold and the reverse; False after the timeout.

        False at once where all that is left is what the hub refused for good.
        """

        def settled() -> bool:
            synced = self.state(conversation) is SyncState.SYNCHRONIZED
            return synced and not self._link.owes(conversation)

        return await self.wait_for(settled, timeout_s) and not self.unsynced(conversation)

    def calls(self) -> HubCalls:
        """Return the hub's unary calls. Raises HubUnreachable where there is no hub address."""
        if self._calls is None:
            raise HubUnreachable("no hub address is configured")
        return self._calls

    # --- events and failures ------------------------------------------------------

    async def failed(self) -> None:
        """Raise what ended the task that makes appends durable; else wait for ever."""
        await self._performer.failed()

    def _tell(self, event: Event) -> None:
        for listener in tuple(self._listeners):
            try:
                listener(event)
            except Exception:  # somebody else's code must not stop what makes entries durable
                log.exception("a listener failed", event_type=type(event).__name__)

    def _undo(self, error: StoreError, lost: Conversations) -> None:
        """Take conversations off the shelf whose last entries the disk refused."""
        for conversation in lost:
            self.shelf.pop(conversation, None)
            self._authors.pop(conversation, None)
            self._link.abandon(conversation, Fault.of(error, conversation))


def _random_epoch() -> int:
    return int.from_bytes(os.urandom(8), "little") or 1


def _is_forked(held: Conversation, author: Author) -> bool:
    lanes = (lane for lane in held.log.lanes() if lane.epoch == author.epoch)
    return any(len(held.log.lane_tips(lane)) > 1 for lane in lanes if lane.author == author.public)
