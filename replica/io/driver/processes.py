"""The processes that share a replica's store, as its own process uses them (DECISIONS D340)."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace

from replica.conversation import Chain, Slot
from replica.errors import ReplicaClosed, StoreError
from replica.ids import ConversationId, EntryId, short
from replica.io.driver.driver import ReplicaDriver, finished
from replica.io.driver.shared_store import SharedStore
from replica.io.driver.sharing import Sharing
from replica.io.driver.writer import Writer
from replica.io.local import ANSWER_S, Identity, LocalFrame, WriteUnconfirmed
from replica.io.local import local_frames as frames
from replica.io.store import Store
from replica.limits import LABEL_BYTES_MAX
from replica.link import Event
from replica.log import Body, Entry, Message
from replica.refusals import ArgumentInvalid, StoreLocked

LOOK_AGAIN_S = 0.1
"""Seconds after which a claim of another process is tried again."""
BARRIER_MIN_S = 1.0
"""Seconds within which a process that runs has answered, however little time a caller has."""


class Processes:
    """The processes on a store, seen from one of them; an unshared store has one."""

    def __init__(
        self,
        store: SharedStore | None,
        driver: ReplicaDriver,
        writer: Writer,
        deliver: Callable[[Event], None],
        label: str | None,
    ) -> None:
        """Write with `writer` where this process holds the store.

        Raises ArgumentInvalid if the label is too long.
        """
        if label is not None and len(label.encode()) > LABEL_BYTES_MAX:
            raise ArgumentInvalid(f"a label has at most {LABEL_BYTES_MAX} bytes")
        self._label = label
        self._store = store
        self._driver = driver
        self._writer = writer
        self._deliver = deliver
        self._row_lock = asyncio.Lock()
        self._claimed: Counter[bytes] = Counter()
        """The claims of the only process on an unshared store."""

    async def start(self) -> None:
        """Serve the store, or follow the process that does."""
        if self._store is not None:
            sharing = Sharing(self._store, self._driver, self._writer, self._deliver)
            await self._store.holding.attach(sharing)

    async def stop(self) -> None:
        """End the service: requests in progress are finished, later ones made elsewhere."""
        if self._store is not None:
            await self._store.holding.stop_sharing()

    @property
    def served_by(self) -> Identity | None:
        """The process through which this one writes the store, None if it holds it itself."""
        client = self._store.holding.client if self._store is not None else None
        return client.server if client is not None else None

    def announce(self, conversation: ConversationId, entries: Iterable[Entry]) -> None:
        """Announce entries that are durable now to the other processes, if this one serves."""
        server = self._store.holding.server if self._store is not None else None
        if server is None or not server.is_used:
            return
        head = {"op": "entries", "conversation": conversation.hex()}
        for group in frames.grouped(entries):
            server.announce(LocalFrame(head, frames.entry_blobs(group)))

    async def barrier(self, timeout_s: float | None = None) -> None:
        """Wait until everything is here that other processes had made durable before the call.

        Raises StoreLocked where the process that holds the store does not answer, as one that
        was stopped: after `timeout_s`, at least BARRIER_MIN_S, if that ends before the bound of
        each call.
        """
        if self._store is None:
            return
        bound_s = None if timeout_s is None else max(timeout_s, BARRIER_MIN_S)
        try:
            async with asyncio.timeout(bound_s):
                await self._store.holding.call(_nothing, LocalFrame({"op": "nothing"}))
        except TimeoutError as late:
            server = self.served_by
            who = f"process {server.process}" if server is not None else "the process"
            detail = f"{who} that holds the store did not answer for {bound_s:.1f} s"
            raise StoreLocked(detail) from late

    def claim(self, name: bytes) -> bool:
        """Claim a name among the processes; False if another one holds it.

        It holds until `release`, once for each time, or until this process ends.
        """
        if self._store is not None:
            return self._store.claims.claim(name)
        self._claimed[name] += 1
        return True

    def is_claimed(self, name: bytes) -> bool:
        """Say whether any process holds a claim now, this one included."""
        if self._store is None:
            return name in self._claimed
        return self._store.claims.is_held(name) or self._store.claims.is_claimed(name)

    def release(self, name: bytes) -> None:
        """Release a claim."""
        if self._store is not None:
            self._store.claims.release(name)
            return
        self._claimed[name] -= 1
        if not self._claimed[name]:
            del self._claimed[name]

    @asynccontextmanager
    async def exclusive(self, name: bytes) -> AsyncIterator[None]:
        """Hold a claim, and know what its last holder wrote; waits while another has it.

        Raises StoreLocked after ANSWER_S, as beside a process that was stopped.
        """
        began = time.monotonic()
        while not self.claim(name):  # the kernel tells nobody
            if time.monotonic() - began > ANSWER_S:
                said = f"another process of this folder has not ended its part for {ANSWER_S:.0f} s"
                raise StoreLocked(said)
            await asyncio.sleep(LOOK_AGAIN_S)
        try:
            await self.barrier()
            yield
        finally:
            self.release(name)

    @asynccontextmanager
    async def changing(self, row: str) -> AsyncIterator[None]:
        """Hold a small row of the store while it is read, changed and written back.

        Other tasks, and other processes on the store, wait meanwhile. Not to be nested.
        """
        async with self._row_lock, self.exclusive(row.encode()):
            yield

    def labelled(self, body: Body) -> Body:
        """Return a body with the label of this process if it is a message without one."""
        if self._label is None or not isinstance(body, Message) or body.label:
            return body
        return replace(body, label=self._label)

    # --- entries of the replica's key -----------------------------------------------------

    async def write(self, conversation: ConversationId, chain: Chain) -> tuple[Entry, ...]:
        """Write a chain; return its entries once they are durable and in memory here.

        Raises the errors of Writer.write, and WriteUnconfirmed.
        """
        if self._store is None or self._store.holding.own is not None:
            return await self._writer.write(conversation, chain)
        # Whoever is cancelled meanwhile leaves an entry that this process has yet to send.
        return await finished(
            self._driver.spawn(self._write_elsewhere(self._store, conversation, chain))
        )

    async def _write_elsewhere(
        self, shared: SharedStore, conversation: ConversationId, chain: Chain
    ) -> tuple[Entry, ...]:
        await self._driver.load(conversation)
        # What the chain follows is durable first: the process that writes knows it then.
        await self._driver.flush()

        async def here(_store: Store, again: bool) -> tuple[EntryId, ...]:
            entries = await self._writer.write(conversation, chain, again=again)
            return tuple(entry.id for entry in entries)

        head = {"op": "write", "conversation": conversation.hex()}
        found = await shared.holding.call(here, frames.chain_frame(head, chain))
        if isinstance(found, LocalFrame):
            found = tuple(map(frames.entry_id, found.head["ids"]))
            await self._learn(conversation, found)
            self._driver.offer(conversation, found)
            await self._driver.flush()  # their events are delivered
        held = await self._driver.load(conversation)
        return tuple(held.log.entries[entry] for entry in found)

    async def _learn(self, conversation: ConversationId, ids: Iterable[EntryId]) -> None:
        """Have entries in memory that another process wrote; read those not announced.

        An announcement is lost with its connection. Raises WriteUnconfirmed.
        """
        assert self._store is not None, "another process writes a shared store alone"
        held = await self._driver.load(conversation)
        if all(entry in held.log.entries for entry in ids):
            return
        try:
            loaded = await self._store.load(conversation)
        except ReplicaClosed:
            raise
        except StoreError as error:
            raise WriteUnconfirmed(f"it was written, and can't be read: {error.detail}") from error
        await self._driver.admit(conversation, tuple(loaded.entries), persist=False)
        held = await self._driver.load(conversation)
        gone = [entry for entry in ids if entry not in held.log.entries]
        if gone:
            raise WriteUnconfirmed(
                f"it was written as {short(gone[0])}, which the store does not hold any more"
            )

    async def slot(self, conversation: ConversationId, track: int) -> Slot:
        """Return the place in a lane where the next entry on a track goes."""
        if self._store is None:
            return await self._writer.slot(conversation, track)

        async def here(_store: Store, _again: bool) -> Slot:
            return await self._writer.slot(conversation, track)

        head = {"op": "slot", "conversation": conversation.hex(), "track": int(track)}
        found = await self._store.holding.call(here, LocalFrame(head))
        return frames.slot_of(found.head["slot"]) if isinstance(found, LocalFrame) else found


async def _nothing(_store: Store, _again: bool) -> None:
    """Do nothing: what this process made durable, it knows."""
