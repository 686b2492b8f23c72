"""Blobs that may be deleted after a time: derived state (spec/04-link §8).

A whole blob's time of modification is the time at which it expires, so no second record can
disagree with the file. One whose upload has just ended expires at once until that is set.
"""

import os
from pathlib import Path
from typing import ClassVar

from replica.ids import ConversationId, Digest
from replica.io.blob_files import bad_name, in_thread, part_name, unlink
from replica.io.blob_tally import Tally
from replica.io.blobs import UPLOAD_LIFETIME_S, Blobs
from replica.io.to_the_end import to_the_end


class ExpiringBlobs(Blobs):
    """Blobs in a folder of their own, each with a time to expire at."""

    lifetimes_s: ClassVar[dict[str, float]] = {
        "": 0,
        ".part": UPLOAD_LIFETIME_S,
        ".bad": UPLOAD_LIFETIME_S,
    }

    async def keep_until(
        self, conversation: ConversationId, digest: Digest, expire_time_ms: int
    ) -> None:
        """Set the Unix time at which a whole blob expires, unless a later one is set.

        Raises StoreError.
        """
        async with self._turn(conversation):
            await in_thread(_keep_until, self._path(conversation, digest), expire_time_ms / 1000)

    async def remove(self, conversation: ConversationId, digest: Digest) -> int:
        """Delete a blob, or its upload; return its bytes. Raises StoreError."""
        whole = self._path(conversation, digest)
        async with self._turn(conversation), self._tallies.held(conversation) as tally:
            return await to_the_end(self._remove(whole, tally))

    async def _remove(self, whole: Path, tally: Tally) -> int:
        writer = self._writers.get(whole)
        if writer is not None:
            await writer.close()
        names = [whole.name, bad_name(whole.name)]
        announced = tally.announced(whole.name)
        if announced is not None:
            names.append(part_name(whole.name, announced))
        removed_bytes = 0
        for name in names:
            size = await in_thread(unlink, whole.with_name(name))
            removed_bytes += size or 0
            tally.drop(name)  # at once: the next file may be one that the disk doesn't delete
        return removed_bytes


def _keep_until(whole: Path, expire_s: float) -> None:
    try:
        if whole.stat().st_mtime < expire_s:
            os.utime(whole, (expire_s, expire_s))
    except FileNotFoundError:  # incomplete, or removed meanwhile
        return
