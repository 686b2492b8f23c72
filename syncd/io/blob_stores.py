"""The blobs of a hub: those that last, and those that expire (spec/04-link §8)."""

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable

import structlog

from replica.ids import ConversationId, Digest
from replica.io import Blobs, BlobState, BlobWriter, ExpiringBlobs
from replica.refusals import ArgumentInvalid

log = structlog.get_logger()

SWEEP_EVERY_S = 60.0


class BlobStores:
    """Two folders of blobs with a quota each; a complete lasting blob comes first."""

    def __init__(
        self, lasting: Blobs, expiring: ExpiringBlobs, clock: Callable[[], float] = time.time
    ) -> None:
        """`clock` returns Unix time in seconds."""
        self._lasting = lasting
        self._expiring = expiring
        self._clock = clock
        self._swept_at = 0.0

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
        """Begin or resume an upload, as `Blobs.open_write` does; call `finish` after it.

        0 as time to expire at is never. Raises ArgumentInvalid for a time in the past.
        """
        if not expire_time_ms:
            return await self._lasting.open_write(conversation, digest, size, offset)
        if expire_time_ms <= self._clock() * 1000:
            raise ArgumentInvalid("expire_time_ms: a time to come, or 0")
        await self.sweep()
        return await self._expiring.open_write(conversation, digest, size, offset)

    async def finish(
        self, conversation: ConversationId, digest: Digest, expire_time_ms: int
    ) -> None:
        """Set the time at which a blob expires whose upload has ended; 0 is never."""
        if expire_time_ms:
            await self._expiring.keep_until(conversation, digest, expire_time_ms)

    async def remove(self, conversation: ConversationId, digest: Digest) -> int:
        """Delete a blob that expires; return its bytes, 0 if there is none."""
        return await self._expiring.remove(conversation, digest)

    async def used(self, conversation: ConversationId) -> int:
        """Return the bytes of all blobs of a conversation; an upload has its final size."""
        return await self._lasting.used(conversation) + await self._expiring.used(conversation)

    async def usage(self) -> dict[ConversationId, int]:
        """Return the bytes of the blobs of each conversation; it lists all folders."""
        found = Counter(await self._lasting.usage())
        found.update(await self._expiring.usage())
        return dict(found)

    async def delete(self, conversation: ConversationId) -> None:
        """Delete all blobs of a conversation."""
        await self._lasting.delete(conversation)
        await self._expiring.delete(conversation)

    async def sweep(self) -> None:
        """Delete what has expired, at most every SWEEP_EVERY_S."""
        now = self._clock()
        if now - self._swept_at < SWEEP_EVERY_S:
            return
        self._swept_at = now
        removed = await self._expiring.sweep(now)
        if removed:
            log.info("expired blobs deleted", bytes=removed)

    async def _store_of(self, conversation: ConversationId, digest: Digest) -> Blobs:
        if (await self._lasting.stat(conversation, digest)).complete:
            return self._lasting
        expiring = await self._expiring.stat(conversation, digest)
        # Whoever begins to write a lasting one does not hide one that is complete.
        return self._expiring if expiring.committed_bytes or expiring.complete else self._lasting
