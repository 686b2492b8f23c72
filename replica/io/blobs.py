"""Blobs: content-addressed files beside the log, scoped by conversation (spec/04-link).

    <folder>/<conversation>/<digest>                a whole blob
    <folder>/<conversation>/<digest>.<size>.part    an upload in progress
    <folder>/<conversation>/<digest>.bad            bytes that no longer match

A blob gets its name only after the SHA-256 of its bytes on disk was checked.
All file work is done in threads.
"""

import asyncio
import contextlib
import hashlib
import os
import shutil
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

import structlog

from replica import limits
from replica.ids import ID_BYTES, ConversationId, Digest, short
from replica.io.blob_tally import Tallies, Tally, part_name, stored_bytes
from replica.io.disk import FILE_MODE, make_folder, sync_folder, typed_errors
from replica.refusals import (
    ArgumentInvalid,
    BlobDigestMismatch,
    BlobMissing,
    BlobOffsetInvalid,
    BlobTooLarge,
    ConversationDeleted,
)

SYNC_BYTES = 1024 * 1024
"""Bytes between two fsyncs of an upload; an upload that is cut off loses at most these."""

_P = ParamSpec("_P")
_R = TypeVar("_R")

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class BlobState:
    """The durable bytes of a blob; `size_bytes` is 0 if unknown."""

    complete: bool
    committed_bytes: int
    size_bytes: int


@dataclass(slots=True)
class _Turn:
    """The lock of one conversation, and the number of those that want it."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0


class Blobs:
    """All blobs of one replica; one process at a time uses a folder."""

    def __init__(
        self,
        folder: Path,
        *,
        bytes_max: int = limits.BLOB_BYTES_MAX,
        total_bytes_max: int = limits.BLOBS_BYTES_MAX,
    ) -> None:
        """Use `folder`, created on the first write.

        A blob has at most `bytes_max` bytes, and all blobs of one conversation
        have at most `total_bytes_max`; an upload counts with its final size.
        """
        self._folder = folder
        self._bytes_max = bytes_max
        self._total_bytes_max = total_bytes_max
        self._writers: dict[Path, BlobWriter] = {}
        self._opening: dict[ConversationId, _Turn] = {}
        self._tallies = Tallies()
        self._deleted: set[ConversationId] = set()

    async def stat(self, conversation: ConversationId, digest: Digest) -> BlobState:
        """Return the state of a blob; an absent one is incomplete with 0 bytes."""
        whole = self._path(conversation, digest)
        writer = self._writers.get(whole)
        return writer.state if writer else await _in_thread(self._stored, whole)

    def check_size(self, size: int) -> None:
        """Raise BlobTooLarge for more bytes than one blob may have."""
        if size > self._bytes_max:
            raise BlobTooLarge(f"{size} bytes; at most {self._bytes_max} are accepted")

    async def open_write(
        self, conversation: ConversationId, digest: Digest, size: int, offset: int
    ) -> "BlobWriter":
        """Begin or resume an upload of `size` bytes at `offset`, the committed size.

        A second writer of the same blob replaces the first, whose writes then
        fail. Offset 0 with another size than before begins anew, since the
        earlier size may have been wrong. Raises BlobTooLarge, QuotaExceeded,
        BlobOffsetInvalid, ConversationDeleted, ArgumentInvalid or StoreError.
        """
        whole = self._path(conversation, digest)
        self.check_size(size)
        # One of a conversation at a time, so that two can't both use the rest of the quota.
        async with self._turn(conversation):
            while (writer := self._writers.get(whole)) is not None:
                await writer.close()
            if conversation in self._deleted:
                raise ConversationDeleted
            writer = BlobWriter(whole, size, self._forget, self._tallies, self._total_bytes_max)
            self._writers[whole] = writer
            await writer.open(offset)
        return writer

    async def read(
        self, conversation: ConversationId, digest: Digest, offset: int = 0
    ) -> AsyncIterator[bytes]:
        """Yield the bytes from `offset` in chunks of at most 256 KiB.

        From offset 0, the last chunk is yielded only after the whole blob was
        verified; bad bytes are quarantined and the read ends in BlobMissing.
        From another offset, the caller verifies the digest of the joined parts.
        Raises BlobMissing, or BlobOffsetInvalid beyond the end.
        """
        whole = self._path(conversation, digest)
        file, size = await _in_thread(_open_whole, whole, offset)
        with contextlib.closing(file):
            hasher = hashlib.sha256() if offset == 0 else None
            at = offset
            while chunk := await _in_thread(_read_chunk, file, hasher):
                at += len(chunk)
                if at >= size:
                    break
                yield chunk
            if hasher is not None and hasher.digest() != digest:
                await _in_thread(_quarantine, whole)
                raise BlobMissing("the blob no longer has its digest; it was set aside")
            if chunk:
                yield chunk

    async def used(self, conversation: ConversationId) -> int:
        """Return the bytes of the blobs of a conversation; an upload has its final size."""
        folder = self._scope(conversation)
        tally = self._tallies.known(folder)
        if tally is None:
            tally = await _in_thread(self._tallies.of, folder)
        return tally.total

    async def usage(self) -> dict[ConversationId, int]:
        """Return the bytes of the blobs of each conversation; it lists all folders."""
        return await _in_thread(_usage, self._folder)

    async def delete(self, conversation: ConversationId) -> None:
        """Delete all blobs of a conversation, uploads in progress included."""
        self._deleted.add(conversation)
        folder = self._scope(conversation)
        for whole, writer in list(self._writers.items()):
            if whole.parent == folder:
                await writer.close()
        await _in_thread(_delete, folder)
        self._tallies.forget(folder)

    @contextlib.asynccontextmanager
    async def _turn(self, conversation: ConversationId) -> AsyncIterator[None]:
        """Wait until no other upload of the conversation is being opened."""
        turn = self._opening.setdefault(conversation, _Turn())
        turn.waiting += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.waiting -= 1
            if not turn.waiting:
                del self._opening[conversation]

    def _scope(self, conversation: ConversationId) -> Path:
        return self._folder / _name(conversation)

    def _path(self, conversation: ConversationId, digest: Digest) -> Path:
        return self._scope(conversation) / _name(digest)

    def _stored(self, whole: Path) -> BlobState:
        return _state(whole, self._tallies.of(whole.parent))

    def _forget(self, whole: Path, writer: "BlobWriter") -> None:
        if self._writers.get(whole) is writer:
            del self._writers[whole]


class BlobWriter:
    """One upload, made by `Blobs.open_write`; close it, or use `async with`.

    Committed bytes are durable. Their number only grows, unless the complete
    blob turns out not to match its digest.
    """

    def __init__(
        self,
        whole: Path,
        size: int,
        forget: Callable[[Path, "BlobWriter"], None],
        tallies: Tallies,
        total_bytes_max: int,
    ) -> None:
        """Prepare an upload of `size` bytes to become the file `whole`."""
        self._whole = whole
        self._part = part_path(whole, size)
        self._size = size
        self._forget = forget
        self._tallies = tallies
        self._total_bytes_max = total_bytes_max
        self._file: FileIO | None = None
        self._written = 0
        self._busy = asyncio.Lock()
        self.state = BlobState(complete=False, committed_bytes=0, size_bytes=size)
        """The durable bytes now."""

    async def __aenter__(self) -> Self:
        """Return the writer."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the upload; it can be resumed."""
        await self.close()

    async def write(self, data: bytes) -> BlobState:
        """Append `data`; the blob is complete once all bytes are written and match.

        Raises ArgumentInvalid if `data` exceeds the size, BlobDigestMismatch if
        the complete blob is wrong (it is then deleted), BlobOffsetInvalid if
        another writer replaced this one, StoreFull or StoreError.
        """
        async with self._busy:
            if self._file is None:
                raise BlobOffsetInvalid("this upload is closed; open it again")
            if self._written + len(data) > self._size:
                raise ArgumentInvalid(f"the data runs past the {self._size} bytes announced")
            await self._in_turn(self._append, self._file, data)
            return self.state

    async def close(self) -> BlobState:
        """Make the written bytes durable and close the file; may be called again."""
        async with self._busy:
            if self._file is not None:
                await self._in_turn(self._sync, self._file)
            self._release()
            return self.state

    async def open(self, offset: int) -> None:
        """Find or create the partial file; called once, by `Blobs`."""
        async with self._busy:
            await self._in_turn(self._open, offset)

    async def _in_turn(self, work: Callable[_P, None], *args: _P.args, **kw: _P.kwargs) -> None:
        """Do file work under the lock; release it after a failure or the last byte."""
        try:
            await _in_thread(work, *args, **kw)
        except BaseException:
            self._release()
            raise
        if self.state.complete:
            self._release()

    def _release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        self._forget(self._whole, self)

    def _open(self, offset: int) -> None:
        make_folder(self._whole.parent)
        tally = self._tallies.of(self._whole.parent)
        before = _state(self._whole, tally)
        if offset == 0 and not before.complete and before.size_bytes != self._size:
            announced = tally.upload(self._whole.name)
            if announced is not None:
                part_path(self._whole, announced).unlink(missing_ok=True)
            before = self.state
        if (offset, self._size) != (before.committed_bytes, before.size_bytes):
            raise BlobOffsetInvalid(
                f"{before.committed_bytes} of {before.size_bytes} bytes are committed here,"
                f" not {offset} of {self._size}"
            )
        if not before.complete:
            tally.check(self._whole.name, self._size, self._total_bytes_max)
            tally.begin(self._whole.name, self._size)
        self.state = before
        self._written = before.committed_bytes
        if not before.complete:
            self._file = FileIO(self._part, "a", opener=_open_private)
            self._sync(self._file)
            self._finish()

    def _append(self, file: FileIO, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            count = file.write(rest)
            self._written += count
            rest = rest[count:]
        if self._written - self.state.committed_bytes >= SYNC_BYTES or self._written == self._size:
            self._sync(file)
            self._finish()

    def _sync(self, file: FileIO) -> None:
        os.fsync(file.fileno())
        if self._written == 0:
            sync_folder(self._part.parent)
        self.state = BlobState(False, self._written, self._size)

    def _finish(self) -> None:
        """Rename the file to its final name if all bytes are written and match."""
        if self._written < self._size:
            return
        if _sha256(self._part).hex() != self._whole.name:
            self._part.unlink()
            self._tallies.of(self._whole.parent).drop(self._whole.name)
            self.state = BlobState(False, 0, self._size)
            raise BlobDigestMismatch(f"the {self._size} bytes do not have the digest")
        self._part.rename(self._whole)
        self._tallies.of(self._whole.parent).complete(self._whole.name)
        sync_folder(self._whole.parent)
        self.state = BlobState(True, self._size, self._size)


async def _in_thread(work: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
    """Run file work in a thread; if cancelled, wait for it, so that no file has two users."""
    task = asyncio.ensure_future(asyncio.to_thread(work, *args, **kwargs))
    with typed_errors():
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait((task,))
            raise


def _usage(folder: Path) -> dict[ConversationId, int]:
    found: dict[ConversationId, int] = {}
    for scope in folder.iterdir() if folder.is_dir() else ():
        with contextlib.suppress(ValueError):  # not a folder of ours
            found[ConversationId(bytes.fromhex(scope.name))] = stored_bytes(scope)
    return found


def _name(id_: bytes) -> str:
    """Return an id as a file name. Checks its length, since peers choose it."""
    if len(id_) != ID_BYTES:
        raise ArgumentInvalid(f"ids and digests have {ID_BYTES} bytes, not {len(id_)}")
    return id_.hex()


def part_path(whole: Path, size: int) -> Path:
    """Return the file of an upload of `size` bytes to become `whole`."""
    return whole.with_name(part_name(whole.name, size))


def bad_path(whole: Path) -> Path:
    """Return the file of bytes that no longer match the name `whole`."""
    return whole.with_name(f"{whole.name}.bad")


def _state(whole: Path, tally: Tally) -> BlobState:
    if whole.is_file():
        size = whole.stat().st_size
        return BlobState(True, size, size)
    announced = tally.upload(whole.name)
    if announced is None:
        return BlobState(False, 0, 0)
    try:
        file = FileIO(part_path(whole, announced))
    except FileNotFoundError:  # expired, or never made because the disk was full
        return BlobState(False, 0, 0)
    with file:
        # Bytes written by a killed process may not be durable yet, and reported ones must be.
        os.fsync(file.fileno())
        return BlobState(False, file.seek(0, os.SEEK_END), announced)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)


def _open_whole(whole: Path, offset: int) -> tuple[FileIO, int]:
    """Open a whole blob at `offset`; return it with its size in bytes."""
    try:
        file = FileIO(whole)
    except FileNotFoundError as error:
        raise BlobMissing from error
    size = file.seek(0, os.SEEK_END)
    if offset > size:
        file.close()
        raise BlobOffsetInvalid(f"the blob has {size} bytes")
    file.seek(offset)
    return file, size


def _read_chunk(file: FileIO, hasher: "hashlib._Hash | None") -> bytes:
    chunk = file.read(limits.BLOB_CHUNK_BYTES)
    if hasher is not None:
        hasher.update(chunk)
    return chunk


def _sha256(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def _quarantine(whole: Path) -> None:
    # Another reader may have quarantined it already, and a writer written sound bytes since.
    if not whole.is_file() or _sha256(whole).hex() == whole.name:
        return
    _log.error(
        "blob quarantined",
        conversation=short(bytes.fromhex(whole.parent.name)),
        blob=short(bytes.fromhex(whole.name)),
    )
    whole.replace(bad_path(whole))
    sync_folder(whole.parent)


def _delete(folder: Path) -> None:
    if folder.is_dir():
        shutil.rmtree(folder)
        sync_folder(folder.parent)
