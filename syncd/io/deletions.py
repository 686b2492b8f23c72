"""Deletions of conversations at a hub: a tombstone, then the bytes (spec/04-link §9).

Tombstones are stored before the entries are erased (DECISIONS D42), so that an interrupted
deletion is completed at the next start.
"""

import asyncio
from collections.abc import Callable

import structlog

from replica.errors import StoreError
from replica.ids import ConversationId, short
from replica.io import Blobs, Performer, Store
from replica.link import Fault
from syncd.fan_out import HubEffects
from syncd.hub import Hub
from syncd.io.blob_stores import BlobStores

log = structlog.get_logger()

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

    async def finish(self) -> None:
        """Note what was deleted, and complete the deletions that were interrupted.

        Before anything is loaded. Raises ValueDamaged, StoreError.
        """
        found = await self._store.tombstones.load()
        for conversation in found:
            self._hub.delete(conversation)
        erased: list[ConversationId] = []
        for conversation in (one for one, is_finished in found.items() if not is_finished):
            try:
                await self._erase(conversation)
                erased.append(conversation)
            except StoreError:
                # It stays deleted for all peers, and the next start tries again.
                log.exception("deletion not finished", conversation=short(conversation))
        try:
            # All at once: a store of three steps, or a repaired one, may have thousands of them.
            await self._store.tombstones.finish(erased)
        except StoreError:
            log.exception("deletions not noted as finished", count=len(erased))

    async def stop(self) -> None:
        """Wait for the deletions that run."""
        await asyncio.gather(*self._running, return_exceptions=True)

    async def delete(self, conversation: ConversationId) -> None:
        """Delete a conversation that is in memory; a caller that is cancelled does not stop it.

        Raises StoreError: then nothing is deleted, or all but the bytes on the disk, which the
        next start erases.
        """
        effects = self._hub.delete(conversation)
        deletion = asyncio.create_task(self._delete(conversation, effects), name="deletion")
        self._running.add(deletion)
        deletion.add_done_callback(self._end)
        await asyncio.shield(deletion)

    async def _delete(self, conversation: ConversationId, effects: HubEffects) -> None:
        try:
            await self._performer.flush(conversation)
            # The tombstone first: after a crash in between, no peer can restore the log.
            await self._store.tombstones.put([conversation])
        except StoreError as error:
            self._submit(self._hub.undelete(conversation, effects, Fault.of(error, conversation)))
            raise
        self._hub.disk.release(conversation)
        self._submit(effects)
        await self._erase(conversation)

    def _end(self, deletion: "asyncio.Task[None]") -> None:
        self._running.discard(deletion)
        if not deletion.cancelled() and deletion.exception() is not None:
            log.warning("deletion failed", detail=str(deletion.exception()))

    async def _erase(self, conversation: ConversationId) -> None:
        """Erase what is stored, the entries last, with a note that nothing is left."""
        await self._blobs.delete(conversation)
        if await self._store.has(conversation):
            await self._store.delete(conversation, finishes=True)
