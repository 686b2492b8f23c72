"""A replica among the processes that share its store (DECISIONS D340, D341).

In the serving process it performs the requests of the others; in the others it admits what
the serving process announces. Which of both it is may change; see shared_store.py.
"""

from collections.abc import Callable

from replica.conversation import EntryStore
from replica.errors import AntiphonError, StoreError
from replica.ids import ConversationId, PublicKey, short
from replica.io.driver.driver import ReplicaDriver
from replica.io.driver.shared_store import SharedStore
from replica.io.driver.writer import Writer
from replica.io.local import LocalFrame
from replica.io.local import local_frames as frames
from replica.io.process import get_logger
from replica.link import EntriesAdmitted, Event
from replica.log import Entry
from replica.refusals import FrameMalformed

log = get_logger()


async def delete(driver: ReplicaDriver, store: EntryStore, conversation: ConversationId) -> None:
    """Delete a conversation from a replica's memory, then from its store."""
    await driver.forget(conversation)
    await driver.flush()
    await store.delete(conversation)
    await driver.forget(conversation)  # a load meanwhile has found it; whoever looks now does not


class Sharing:
    """The part of a replica that the other processes of its store use; see Sharer."""

    def __init__(
        self,
        store: SharedStore,
        driver: ReplicaDriver,
        writer: Writer,
        deliver: Callable[[Event], None],
    ) -> None:
        """Share the driver's conversations; `deliver` receives events about others."""
        self._store = store
        self._driver = driver
        self._writer = writer
        self._deliver = deliver

    # --- in the serving process -----------------------------------------------------------

    async def perform(self, frame: LocalFrame) -> LocalFrame | None:
        """Perform a request of another process. Raises AntiphonError."""
        match frame.head.get("op"):
            case "append":
                await self._append(frames.conversation_in(frame), frames.entries_in(frame))
            case "write":
                return await self._write(frame)
            case "slot":
                conversation = frames.conversation_in(frame)
                slot = await self._writer.slot(conversation, frame.head["track"])
                return LocalFrame({"slot": frames.slot_fields(slot)})
            case "delete":
                await delete(self._driver, self._store, frames.conversation_in(frame))
            case "put":
                await self._store.put_meta(frame.head["key"], frame.blobs[0])
            case "acks":
                self._save_acks(frame)
                return None
            case "nothing":
                pass
            case op:
                raise FrameMalformed(f"no request '{op}' is known")
        return LocalFrame({})

    async def _write(self, frame: LocalFrame) -> LocalFrame:
        conversation, chain = frames.conversation_in(frame), frames.chain_in(frame)
        # The process that asked sends them; this one if the hub lacks them later.
        written = await self._writer.write(
            conversation, chain, send=False, again=frame.head["again"]
        )
        if frame.is_given_up:  # nobody else knows that they are to be sent
            self._driver.offer(conversation, [entry.id for entry in written])
        return LocalFrame({"ids": [entry.id.hex() for entry in written]})

    async def _append(self, conversation: ConversationId, entries: tuple[Entry, ...]) -> None:
        durable = await self._driver.admit(conversation, entries, persist=True)
        if durable is None:
            await self._store.append(entries)
            durable = await self._driver.admit(conversation, entries, persist=False)
        if durable is None:
            self._deliver(EntriesAdmitted(conversation, entries))
        else:
            await durable

    def _save_acks(self, frame: LocalFrame) -> None:
        peer = PublicKey(bytes.fromhex(frame.head["peer"]))
        positions = map(frames.position_of, frame.head["positions"])
        conversation = frames.conversation_in(frame)
        self._store.save_acks(conversation, peer, positions, frame.head["now_ms"])

    # --- in the others --------------------------------------------------------------------

    async def notice(self, frame: LocalFrame) -> None:
        """Admit what the serving process announces; the file holds it already."""
        conversation = frames.conversation_in(frame)
        try:
            match frame.head.get("op"):
                case "entries":
                    # The future is not awaited: it may end only with a write of this process,
                    # whose answer comes behind this announcement.
                    await self._driver.admit(conversation, frames.entries_in(frame), persist=False)
                case "deleted":
                    await self._driver.forget(conversation)
                case op:
                    raise FrameMalformed(f"no announcement '{op}' is known")
        except AntiphonError as error:
            log.warning("announcement not read", reason=error.reason, detail=error.detail)

    async def catch_up(self, store: EntryStore) -> tuple[Entry, ...]:
        """Admit what the store holds by now; return the entries of memory that it lacks.

        An own lane that lost its end in the store, as a restored backup does, is not
        continued: the next entry begins a new epoch (ENT-14).
        """
        core, lost = self._driver.core, list[Entry]()
        for conversation in tuple(core.shelf):
            try:
                loaded = await store.load(conversation)
            except StoreError as error:
                log.warning(
                    "could not read it", conversation=short(conversation), reason=error.reason
                )
                continue
            held = core.shelf.get(conversation)
            if held is None or not loaded:
                continue
            await self._driver.admit(conversation, tuple(loaded.entries), persist=False)
            stored = {entry.id for entry in loaded.entries}
            core.epochs.reopened(held, stored)
            lost += [entry for entry in held.log.entries.values() if entry.id not in stored]
        return tuple(lost)

    async def restore(self, lost: tuple[Entry, ...]) -> None:
        """Store entries again that were durable, or are being written just now."""
        try:
            await self._store.append(lost)
        except StoreError as error:
            log.warning("entries in memory are not stored", reason=error.reason, count=len(lost))
