"""The blobs of a hub: those that last, and those that expire (spec/04-link §8)."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from math import inf

import structlog

from replica.errors import StoreError
from replica.ids import ConversationId, Digest
from replica.io import BlobQuota, Blobs, BlobState, BlobWriter, ExpiringBlobs, Repeated, to_the_end
from replica.refusals import ArgumentInvalid

log = structlog.get_logger()

SWEEP_EVERY_S = 60.0
SWEEP_LASTING_EVERY_S = 3600.0
"""Time between two looks at the folders of all lasting blobs, whose uploads alone are deleted."""


class BlobStores:
    """Two folders of blobs with a quota each; a complete lasting blob comes first."""

    def __init__(
        self, lasting: Blobs, expiring: ExpiringBlobs, clock: Callable[[], float] = time.time
    ) -> None:
        """`clock` returns Unix time in seconds."""
        self._lasting = lasting
        self._expiring = expiring
        self._clock = clock
        self._swept_at: dict[Blobs, float] = {}
        self._lines = Repeated()

    async def count_with(self, quota: BlobQuota) -> None:
        """Obey a quota, and tell it the bytes of both; see Blobs.count_with."""
        await self._lasting.count_with(quota)
        await self._expiring.count_with(quota)

    async def stat(self, conversation: ConversationId, digest: Digest) -> BlobState:
        """Return the state of a blob; an absent one is incomplete with 0 bytes."""
        return await (await self._store_of(conversation, digest)).stat(conversation, digest)

    async def read(
        self, conversation: ConversationId, digest: Digest, offset: int
    ) -> AsyncIterator[bytes]:
        """Yield the bytes of a blob. Raises what `Blobs.read` raises."""
        store = await self._store_of(conversation, digest)
        async for chunk in store.read(conversation, digest, offset):
            yield chunk

    def check_size(self, size: int) -> None:
        """Raise BlobTooLarge for more bytes than one blob may have."""
        self._lasting.check_size(size)

    async def open_write(
        self,
        conversation: ConversationId,
        digest: Digest,
        size: int,
        offset: int,
        expire_time_ms: int,
    ) -> BlobWriter:
        """Begin or resume an upload, as `Blobs.open_write` does; call `finish` once it is whole.

        0 as time to expire at is never. Raises ArgumentInvalid for a time in the past.
        """
        if expire_time_ms and expire_time_ms <= self._clock() * 1000:
            raise ArgumentInvalid("expire_time_ms: a time to come, or 0; compare the two clocks")
        # So that nothing overdue counts against the quotas. To its end, whatever becomes of the
        # call: the sweep is that of the hub, and the next one is due a minute later.
        await to_the_end(self.sweep())
        if not expire_time_ms:
            return await self._lasting.open_write(conversation, digest, size, offset)
        return await self._expiring.open_write(conversation, digest, size, offset, expire_time_ms)

    async def finish(
        self, conversation: ConversationId, digest: Digest, expire_time_ms: int
    ) -> None:
        """See to it that a whole blob expires no earlier than then; 0 is never.

        Raises BlobMissing if it is gone, and StoreError.
        """
        if expire_time_ms:
            await self._expiring.keep_until(conversation, digest, expire_time_ms)

    async def remove(self, conversation: ConversationId, digest: Digest) -> int:
        """Delete a blob that expires; return its bytes, 0 if there is none."""
        return await self._expiring.remove(conversation, digest)

    async def delete(self, conversation: ConversationId) -> None:
        """Delete all blobs of a conversation."""
        await self._lasting.delete(conversation)
        await self._expiring.delete(conversation)

    async def sweep(self) -> None:
        """Delete what has expired, and uploads that nobody went on with, where a look is due."""
        now = self._clock()
        intervals_s = {self._expiring: SWEEP_EVERY_S, self._lasting: SWEEP_LASTING_EVERY_S}
        for store, interval_s in intervals_s.items():
            # A clock that was set back must not put the next look off until it has caught up.
            if 0 <= now - self._swept_at.get(store, -inf) < interval_s:
                continue
            self._swept_at[store] = now
            try:
                deleted = await store.sweep(now)
            except StoreError as error:  # the next look tries it again; the hub serves meanwhile
                if times := self._lines.due(error.reason):
                    fields = {"reason": error.reason, "detail": error.detail, "times": times}
                    log.warning("overdue blobs not deleted", next_step=error.next_step, **fields)
                continue
            if deleted:
                size = sum(deleted.values())
                log.info("overdue blobs deleted", count=len(deleted), bytes=size)

    async def run_sweeps(self) -> None:
        """Sweep until cancelled."""
        while True:
            await asyncio.sleep(SWEEP_EVERY_S)
            await self.sweep()

    async def _store_of(self, conversation: ConversationId, digest: Digest) -> Blobs:
        if (await self._lasting.stat(conversation, digest)).complete:
            return self._lasting
        expiring = await self._expiring.stat(conversation, digest)
        # Whoever begins to write a lasting one does not hide one that is complete.
        return self._expiring if expiring.committed_bytes or expiring.complete else self._lasting
