"""Blobs that may be deleted after a time: derived state (spec/04-link §8).

A whole blob's time of modification is the time at which it expires, so no second record can
disagree with the file. It is set before the file gets the name of a whole blob.
"""

import os
from io import FileIO
from pathlib import Path
from typing import ClassVar

from replica.ids import ConversationId, Digest
from replica.io.blobs.blob_files import bad_name, in_thread, part_name, set_expiry, unlink
from replica.io.blobs.blob_tally import Tally
from replica.io.blobs.blobs import Blobs
from replica.io.process import to_the_end
from replica.limits import UPLOAD_LIFETIME_S
from replica.refusals import BlobMissing


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
        """Set the Unix time at which a whole blob expires durably, unless a later one is set.

        Raises BlobMissing if it is gone or was never whole, and StoreError.
        """
        async with self._turn(conversation):
            await in_thread(_keep_until, self._path(conversation, digest), expire_time_ms)

    async def remove(self, conversation: ConversationId, digest: Digest) -> int:
        """Delete a blob, or its upload, durably; return its bytes. Raises StoreError."""
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
        sizes = []
        for name in names:
            sizes.append(await in_thread(unlink, whole.with_name(name)))
            tally.drop(name)  # at once: the next file may be one that the disk doesn't delete
        removed = [size for size in sizes if size is not None]
        if removed:
            await in_thread(tally.folder.sync)
        return sum(removed)


def _keep_until(whole: Path, expire_time_ms: int) -> None:
    try:
        file = FileIO(whole)
    except FileNotFoundError as error:
        raise BlobMissing("the blob was deleted meanwhile, or is not whole") from error
    with file:
        if os.fstat(file.fileno()).st_mtime_ns < expire_time_ms * 1_000_000:
            set_expiry(file, expire_time_ms)
            os.fsync(file.fileno())
