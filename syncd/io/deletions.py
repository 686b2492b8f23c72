"""Deletions of conversations at a hub: a tombstone, then the bytes (spec/04-link §9).

Tombstones are stored before the entries are erased (DECISIONS D42), so that an interrupted
deletion is completed at the next start. Bytes that a full disk keeps are erased once it has
room (DECISIONS D496).
"""

import asyncio
from collections.abc import Callable, Coroutine

import structlog

from replica.errors import StoreError
from replica.ids import ConversationId, short
from replica.io import Blobs, Performer, Store
from replica.link import Fault
from syncd.hub import Hub
from syncd.io.blob_stores import BlobStores
from syncd.links import HubEffects

log = structlog.get_logger()

ERASE_AGAIN_S = 10.0
"""Delay of the next attempt to erase what a disk kept."""

Submit = Callable[[HubEffects], object]


class Deletions:
    """The deletions that run, and those that an earlier process did not finish."""

    def __init__(
        self,
        hub: Hub,
        store: Store,
        blobs: Blobs | BlobStores,
        performer: Performer,
        submit: Submit,
    ) -> None:
        """Use the parts of the driver; `submit` queues effects."""
        self._hub, self._store, self._blobs = hub, store, blobs
        self._performer, self._submit = performer, submit
        self._running: set[asyncio.Task[None]] = set()
        self._of: dict[ConversationId, asyncio.Task[None]] = {}
        """Those of the running ones that somebody asked for."""
        self._erasing: set[asyncio.Task[None]] = set()
        """What takes long of them: the erasure of entries, step by step."""
        self._kept: set[ConversationId] = set()
        """Deleted conversations whose bytes are still to be erased."""
        self._timer: asyncio.TimerHandle | None = None
        self._is_stopping = False

    async def finish(self) -> None:
        """Note what was deleted, and complete the deletions that were interrupted.

        Before anything is loaded. Raises ValueDamaged, StoreError.
        """
        found = await self._store.tombstones.load()
        for conversation in found:
            self._hub.delete(conversation)
        erased = [one for one, is_finished in found.items() if not is_finished]
        erased = [one for one in erased if await self._is_erased(one)]
        try:
            # All at once: a store of three steps, or a repaired one, may have thousands of them.
            await self._store.tombstones.finish(erased)
        except StoreError:
            log.exception("deletions not noted as finished", count=len(erased))

    async def count(self) -> None:
        """Count the deleted conversations for the keys that brought them.

        Once the others are counted: their creators are the ones known, whatever was deleted.
        """
        bringers = await self._store.bringers.load()
        for conversation in self._hub.deleted:
            self._hub.bringers.count(bringers.get(conversation), conversation)

    async def stop(self) -> None:
        """Wait for the deletions that run; the next start goes on with the bytes that are left."""
        self._is_stopping = True
        if self._timer is not None:
            self._timer.cancel()
        for erasing in self._erasing:
            erasing.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def decided(self, conversation: ConversationId) -> None:
        """Wait for a deletion of the conversation that runs: until then it may yet be undone."""
        if (deletion := self._of.get(conversation)) is not None:
            await asyncio.wait({deletion})

    async def delete(self, conversation: ConversationId) -> None:
        """Delete a conversation that is in memory; a caller that is cancelled does not stop it.

        Bytes that the disk keeps are erased later. Raises StoreError: then nothing is deleted.
        """
        effects = self._hub.delete(conversation)
        deletion = self._of[conversation] = self._run(self._delete(conversation, effects))
        deletion.add_done_callback(lambda _: self._of.pop(conversation))
        await asyncio.shield(deletion)

    async def _delete(self, conversation: ConversationId, effects: HubEffects) -> None:
        try:
            await self._performer.flush(conversation)
            # The tombstone first: after a crash in between, no peer can restore the log.
            await self._put_tombstone(conversation)
        except StoreError as error:
            self._submit(
                self._hub.undelete(conversation, effects, Fault.of(error.for_peer(), conversation))
            )
            raise
        self._hub.disk.release(conversation)
        self._submit(effects)
        await self._is_erased(conversation)

    async def _put_tombstone(self, conversation: ConversationId) -> None:
        bringer = self._hub.bringers.bringer(conversation)
        known = {conversation: bringer} if bringer is not None else {}
        await asyncio.gather(  # in one transaction, if the disk takes both
            self._store.tombstones.put([conversation]), self._store.bringers.put(known)
        )

    def _run(self, work: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        deletion = asyncio.create_task(work, name="deletion")
        self._running.add(deletion)
        deletion.add_done_callback(self._end)
        return deletion

    def _end(self, deletion: "asyncio.Task[None]") -> None:
        self._running.discard(deletion)
        if not deletion.cancelled() and deletion.exception() is not None:
            log.warning("deletion failed", detail=str(deletion.exception()))

    async def _is_erased(self, conversation: ConversationId) -> bool:
        """Erase what is stored; False if the disk refused, and it is tried again."""
        try:
            await self._erase(conversation)
        except StoreError as error:
            # It stays deleted for all peers.
            detail = f"{error.reason}: {error.detail}"
            log.warning("deletion not finished", conversation=short(conversation), detail=detail)
            self._kept.add(conversation)
            if self._timer is None and not self._is_stopping:
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(ERASE_AGAIN_S, self._again)
            return False
        return True

    def _again(self) -> None:
        self._timer = None
        self._run(self._erase_kept())

    async def _erase_kept(self) -> None:
        kept, self._kept = self._kept, set()
        await self._store.tombstones.finish([one for one in kept if await self._is_erased(one)])

    async def _erase(self, conversation: ConversationId) -> None:
        """Erase what is stored, the entries last, with a note that nothing is left."""
        await self._blobs.delete(conversation)
        if not await self._store.has(conversation):
            return
        erasing = asyncio.create_task(self._store.delete(conversation, finishes=True))
        self._erasing.add(erasing)
        erasing.add_done_callback(self._erasing.discard)
        if self._is_stopping:
            erasing.cancel()
        await asyncio.wait({erasing})
        if erasing.cancelled():
            raise StoreError("the hub stops, and its next start erases the rest")
        await erasing
