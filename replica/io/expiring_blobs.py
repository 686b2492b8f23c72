"""Blobs that may be deleted after a time: derived state (spec/04-link §8).

A whole blob's time of modification is the time at which it expires, so no second record can
disagree with the file. One whose upload has just ended expires at once until that is set.
"""

import asyncio
import os
from pathlib import Path

from replica.ids import ConversationId, Digest
from replica.io.blobs import Blobs, bad_path, part_path
from replica.io.disk import typed_errors

UPLOAD_LIFETIME_S = 24 * 3600
"""Age of an upload that nobody goes on with, after which it is deleted."""


class ExpiringBlobs(Blobs):
    """Blobs in a folder of their own, each with a time to expire at."""

    async def keep_until(
        self, conversation: ConversationId, digest: Digest, expire_time_ms: int
    ) -> None:
        """Set the Unix time at which a whole blob expires, unless a later one is set.

        Raises StoreError.
        """
        whole, expire_s = self._path(conversation, digest), expire_time_ms / 1000
        with typed_errors():
            await asyncio.to_thread(_keep_until, whole, expire_s)

    async def remove(self, conversation: ConversationId, digest: Digest) -> int:
        """Delete a blob, or its upload; return its bytes. Raises StoreError."""
        whole = self._path(conversation, digest)
        writer = self._writers.get(whole)
        if writer is not None:
            await writer.close()
        with typed_errors():
            return await asyncio.to_thread(self._remove, whole)

    async def sweep(self, now_s: float) -> int:
        """Delete all that has expired at a Unix time; return its bytes. Raises StoreError."""
        with typed_errors():
            removed = await asyncio.to_thread(_sweep, self._folder, now_s)
        if removed:
            self._tallies.clear()
        return removed

    def _remove(self, whole: Path) -> int:
        tally = self._tallies.of(whole.parent)
        files = [whole, bad_path(whole)]
        announced = tally.upload(whole.name)
        if announced is not None:
            files.append(part_path(whole, announced))
        removed = sum(map(_unlink, files))
        for file in files:
            tally.drop(file.name)
        return removed


def _keep_until(whole: Path, expire_s: float) -> None:
    try:
        if whole.stat().st_mtime < expire_s:
            os.utime(whole, (expire_s, expire_s))
    except FileNotFoundError:  # incomplete, or removed meanwhile
        return


def _sweep(folder: Path, now_s: float) -> int:
    removed = 0
    for file in folder.glob("*/*"):
        age_s = now_s - file.stat().st_mtime
        if age_s >= (UPLOAD_LIFETIME_S if file.suffix else 0):
            removed += _unlink(file)
    return removed


def _unlink(file: Path) -> int:
    try:
        size = file.stat().st_size
        file.unlink()
    except FileNotFoundError:
        return 0
    return size
