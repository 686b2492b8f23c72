"""One upload of a blob (spec/04-link §8).

A blob gets its name only after the SHA-256 of its bytes on disk was checked.
"""

import asyncio
import os
from collections.abc import Awaitable
from io import FileIO
from pathlib import Path
from typing import Protocol

from replica.io.blobs.blob_files import (
    BlobState,
    in_thread,
    open_part,
    part_name,
    set_expiry,
    sha256,
    unlink,
)
from replica.io.blobs.blob_tally import Tally
from replica.io.process import Closing, to_the_end
from replica.refusals import ArgumentInvalid, BlobDigestMismatch, BlobOffsetInvalid

SYNC_BYTES = 1024 * 1024
"""Bytes between two fsyncs of an upload; an upload that is cut off loses at most these."""


class Uploads(Protocol):
    """The store that uploads are made in."""

    def admit(self, writer: "BlobWriter") -> None:
        """Raise QuotaExceeded if an upload that begins or goes on is too much."""

    def forget(self, writer: "BlobWriter") -> None:
        """Note that a writer is closed; it may be called again."""


class BlobWriter(Closing):
    """One upload, made by `Blobs.open_write`; close it, or use `async with`.

    Committed bytes are durable. Their number only grows, unless the complete
    blob turns out not to match its digest.
    """

    def __init__(
        self, whole: Path, size: int, tally: Tally, uploads: Uploads, expire_time_ms: int = 0
    ) -> None:
        """Prepare an upload of `size` bytes to become the file `whole`, which expires then.

        Without a time, its time of modification is that of its last byte.
        """
        self.whole = whole
        self._expire_time_ms = expire_time_ms
        self.size = size
        self.tally = tally
        self._part = whole.with_name(part_name(whole.name, size))
        self._uploads = uploads
        self._file: FileIO | None = None
        self._is_reserved = False
        self._stored: int | None = None
        """Bytes on disk now; None if there is no partial file."""
        self._is_whole = False
        """Whether the file has its final name, which may not be durable yet."""
        self._is_named = False
        """Whether the name of the partial file is durable."""
        self._busy = asyncio.Lock()
        self.state = BlobState(complete=False, committed_bytes=0, size_bytes=size)
        """The durable bytes now."""

    async def write(self, data: bytes) -> BlobState:
        """Append `data`; the blob is complete once all bytes are written and match.

        Raises ArgumentInvalid if `data` exceeds the size, BlobDigestMismatch if
        the complete blob is wrong (it is then deleted), BlobOffsetInvalid if
        another writer replaced this one, StoreFull or StoreError.
        """
        async with self._busy:
            stored = self.state.committed_bytes if self._stored is None else self._stored
            if stored + len(data) > self.size and (self._file is not None or self.state.complete):
                raise ArgumentInvalid(f"the data runs past the {self.size} bytes announced")
            if self.state.complete:
                return self.state
            if self._file is None:
                raise BlobOffsetInvalid("this upload is closed; open it again")
            await self._in_turn(in_thread(self._append, self._file, data))
            return self.state

    async def close(self) -> BlobState:
        """Make the written bytes durable and close the file; may be called again."""
        async with self._busy:
            if self._file is not None:
                await self._in_turn(in_thread(self._sync, self._file))
            self._release()
            return self.state

    async def make_way(self, offset: int, size: int) -> None:
        """Close for another writer of the blob that would begin at `offset`.

        Raises BlobOffsetInvalid if its offset is wrong, and stays open: of two writers that
        both begin again and again, one goes on to its end.
        """
        async with self._busy:
            if self._file is not None:
                await self._in_turn(in_thread(self._sync, self._file))
                if offset or size == self.size:
                    _check_offset(self.state, offset, size)
            self._release()

    async def open(self, offset: int) -> None:
        """Find or create the partial file; called once, by `Blobs`."""
        async with self._busy:
            # To its end: what it deletes and makes, and what the tally says, change together.
            await self._in_turn(to_the_end(self._open(offset)))

    async def _in_turn(self, work: Awaitable[None]) -> None:
        """Do work under the lock; release the file after a failure or the last byte."""
        try:
            await work
        except BaseException:
            self._release()
            raise
        if self.state.complete:
            self._release()

    def _release(self) -> None:
        file, self._file = self._file, None
        if self._is_reserved:
            self._is_reserved = False
            if self._is_whole:
                self.tally.complete(self.whole.name, self.size)
            elif self._stored is not None:
                self.tally.close(self.whole.name, self.size, self._stored)
            else:
                self.tally.drop(self._part.name)
        self._uploads.forget(self)
        if file is not None:
            file.close()

    async def _open(self, offset: int) -> None:
        announced, before = self.tally.announced(self.whole.name), BlobState(False, 0, 0)
        if offset or self.tally.has(self.whole.name):
            before = await self.tally.state(self.whole)
        if offset == 0 and not before.complete and before.size_bytes != self.size:
            before = self.state
        _check_offset(before, offset, self.size)
        self.state = before
        if before.complete:
            return
        # One step: no other upload is admitted between the check and the reservation.
        self._uploads.admit(self)
        self.tally.open(self.whole.name, self.size)
        self._is_reserved = True
        if announced == self.size:
            self._stored = before.committed_bytes
        if announced is not None and announced != self.size:
            replaced = self._part.with_name(part_name(self.whole.name, announced))
            try:
                await in_thread(unlink, replaced)
            except BaseException:
                self._is_reserved = False
                self.tally.keep(self.whole.name, self.size, announced)
                raise
            self.tally.drop(replaced.name)
        await in_thread(self._open_part)

    def _open_part(self) -> None:
        self._file = open_part(self._part)
        self._stored = self._file.tell()
        if self._stored != self.state.committed_bytes:
            # Another process wrote them since the folder was listed.
            raise BlobOffsetInvalid(f"{self._stored} bytes are committed here")
        self._sync(self._file)
        self._finish()

    def _append(self, file: FileIO, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            count = file.write(rest)
            self._stored = (self._stored or 0) + count
            rest = rest[count:]
        stored = self._stored or 0
        if stored - self.state.committed_bytes >= SYNC_BYTES or stored == self.size:
            self._sync(file)
            self._finish()

    def _sync(self, file: FileIO) -> None:
        """Make the bytes durable, and the name of a file that stays a partial one."""
        stored = self._stored or 0
        if stored or stored == self.size:
            if stored == self.size and self._expire_time_ms:
                # Before the renaming: a whole file with another time could be swept at once.
                set_expiry(file, self._expire_time_ms)
            os.fsync(file.fileno())
            if stored < self.size and not self._is_named:
                self.tally.folder.sync()
                self._is_named = True
        self.state = BlobState(False, stored, self.size)

    def _finish(self) -> None:
        """Rename the file to its final name if all bytes are written and match."""
        if self.state.committed_bytes < self.size:
            return
        if sha256(self._part).hex() != self.whole.name:
            self._part.unlink()
            self._stored = None
            self.state = BlobState(False, 0, self.size)
            raise BlobDigestMismatch(f"the {self.size} bytes do not have the digest")
        self._part.rename(self.whole)
        self._is_whole = True
        self.tally.folder.sync()
        self.state = BlobState(True, self.size, self.size)


def _check_offset(state: BlobState, offset: int, size: int) -> None:
    if (offset, size) != (state.committed_bytes, state.size_bytes):
        raise BlobOffsetInvalid(
            f"{state.committed_bytes} of {state.size_bytes} bytes are committed here,"
            f" not {offset} of {size}"
        )
