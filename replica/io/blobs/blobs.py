"""Blobs: content-addressed files beside the log, scoped by conversation (spec/04-link §8).

Quotas count what is on disk, and the announced rest of uploads that are open (DECISIONS D400).
All file work is done in threads.
"""

import asyncio
import contextlib
import hashlib
import shutil
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from replica import limits
from replica.ids import ConversationId, Digest
from replica.io.blobs.blob_files import (
    BlobState,
    file_sizes,
    in_thread,
    name_of,
    open_whole,
    quarantine,
    read_chunk,
    unlink,
)
from replica.io.blobs.blob_tally import BlobQuota, Tallies, Tally
from replica.io.blobs.blob_writer import BlobWriter
from replica.io.files import store_error, sync_folder
from replica.io.process import to_the_end
from replica.refusals import BlobMissing, BlobTooLarge, ConversationDeleted, StoreLocked


@dataclass(slots=True)
class _Turn:
    """The lock of one conversation, and the number of those that want it."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0


class Blobs:
    """All blobs of one replica."""

    lifetimes_s: ClassVar[dict[str, float]] = {".part": limits.UPLOAD_LIFETIME_S}
    """The age after which `sweep` deletes a file, by the ending of its name; others stay."""

    def __init__(
        self,
        folder: Path,
        *,
        bytes_max: int = limits.BLOB_BYTES_MAX,
        total_bytes_max: int = limits.BLOBS_BYTES_MAX,
    ) -> None:
        """Use `folder`, created on the first write.

        A blob has at most `bytes_max` bytes, and all blobs of one conversation
        have at most `total_bytes_max`; an open upload counts with its final size.
        """
        self._folder = folder
        self._bytes_max = bytes_max
        self._total_bytes_max = total_bytes_max
        self._writers: dict[Path, BlobWriter] = {}
        self._turns: dict[ConversationId, _Turn] = {}
        self._tallies = Tallies(folder, self._note_bytes)
        self._quota: BlobQuota | None = None
        self._deleted: set[ConversationId] = set()

    async def count_with(self, quota: BlobQuota) -> None:
        """Obey a quota too, and tell it all bytes, now and whenever they change.

        It lists all folders. Raises StoreError.
        """
        self._quota = quota
        for conversation, used in (await in_thread(_usage, self._folder)).items():
            self._note_bytes(conversation, *used)

    async def stat(self, conversation: ConversationId, digest: Digest) -> BlobState:
        """Return the state of a blob; an absent one is incomplete with 0 bytes."""
        whole = self._path(conversation, digest)
        tally = await self._tallies.of(conversation)
        writer = self._writers.get(whole)
        if writer is not None:
            return writer.state
        return await tally.state(whole)

    def check_size(self, size: int) -> None:
        """Raise BlobTooLarge for more bytes than one blob may have."""
        if size > self._bytes_max:
            raise BlobTooLarge(f"{size} bytes; at most {self._bytes_max} are accepted")

    async def open_write(
        self,
        conversation: ConversationId,
        digest: Digest,
        size: int,
        offset: int,
        expire_time_ms: int = 0,
    ) -> BlobWriter:
        """Begin or resume an upload of `size` bytes at `offset`, the committed size.

        The time is for `ExpiringBlobs` alone: the Unix time at which the blob expires once it
        is whole. Without one it expires with its last byte.

        A second writer of the same blob replaces the first, whose writes then
        fail; one that is refused leaves it open. Offset 0 with another size than
        before begins anew, since the earlier size may have been wrong. Raises BlobTooLarge,
        QuotaExceeded, BlobOffsetInvalid, ConversationDeleted, ArgumentInvalid, StoreError,
        or StoreLocked if another process writes the blob.
        """
        whole = self._path(conversation, digest)
        self.check_size(size)
        async with self._turn(conversation), self._tallies.held(conversation) as tally:
            while (writer := self._writers.get(whole)) is not None:
                await writer.make_way(offset, size)
            if conversation in self._deleted:
                raise ConversationDeleted
            writer = BlobWriter(whole, size, tally, self, expire_time_ms)
            self._writers[whole] = writer
            tally.holders += 1
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
        file, size = await in_thread(open_whole, whole, offset)
        with contextlib.closing(file):
            hasher = hashlib.sha256() if offset == 0 else None
            at = offset
            while chunk := await in_thread(read_chunk, file, hasher):
                at += len(chunk)
                if at >= size:
                    break
                yield chunk
            if hasher is not None and hasher.digest() != digest:
                await self._set_aside(conversation, whole)
                raise BlobMissing("the blob no longer has its digest; it was set aside")
            if chunk:
                yield chunk

    async def delete(self, conversation: ConversationId) -> None:
        """Delete all blobs of a conversation, uploads in progress included."""
        self._deleted.add(conversation)
        folder = self._scope(conversation)
        async with self._turn(conversation):
            for whole, writer in list(self._writers.items()):
                if whole.parent == folder:
                    await writer.close()
            await to_the_end(self._delete(conversation, folder))

    async def _delete(self, conversation: ConversationId, folder: Path) -> None:
        await in_thread(_delete, folder)
        self._tallies.clear(conversation)

    async def sweep(self, now_s: float) -> dict[ConversationId, int]:
        """Delete what nobody went on with, at a Unix time, and what has expired.

        Nothing is synced: a file that a power failure brings back is as old as before, and the
        next sweep deletes it. Return the bytes deleted of each conversation. Raises StoreError,
        once all other files are deleted.
        """
        deleted = {}
        failed: list[OSError] = []
        overdue = await in_thread(self._overdue, now_s, failed)
        for conversation, files in overdue.items():
            # In turn: none of the files is being opened, and the open ones are known.
            async with self._turn(conversation), self._tallies.held(conversation) as tally:
                idle = [file for file in files if not self._is_open(file)]
                gone: dict[str, int] = {}
                try:
                    await in_thread(self._unlink_overdue, idle, now_s, gone, failed)
                finally:  # also where the caller is cancelled
                    for name in gone:
                        tally.drop(name)
            if gone:
                deleted[conversation] = sum(gone.values())
        if failed:
            raise store_error(failed[0])
        return deleted

    # --- uploads ------------------------------------------------------------------

    def admit(self, writer: BlobWriter) -> None:
        """Raise QuotaExceeded if an upload that begins or goes on is too much."""
        tally, blob = writer.tally, writer.whole.name
        tally.check(blob, writer.size, self._total_bytes_max)
        if self._quota is not None:
            conversation = ConversationId(bytes.fromhex(writer.whole.parent.name))
            files = int(tally.is_new(blob, writer.size))
            self._quota.check_blobs(conversation, tally.growth(blob, writer.size), files)

    def forget(self, writer: BlobWriter) -> None:
        """Note that a writer is closed; it may be called again."""
        if self._writers.get(writer.whole) is writer:
            del self._writers[writer.whole]
            writer.tally.holders -= 1

    @contextlib.asynccontextmanager
    async def _turn(self, conversation: ConversationId) -> AsyncIterator[None]:
        """Wait until no file of the conversation is being opened or deleted."""
        turn = self._turns.setdefault(conversation, _Turn())
        turn.waiting += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.waiting -= 1
            if not turn.waiting:
                del self._turns[conversation]

    def _is_open(self, file: Path) -> bool:
        return file.with_name(file.name.partition(".")[0]) in self._writers

    # --- files --------------------------------------------------------------------

    def _scope(self, conversation: ConversationId) -> Path:
        return self._folder / name_of(conversation)

    def _path(self, conversation: ConversationId, digest: Digest) -> Path:
        return self._scope(conversation) / name_of(digest)

    async def _set_aside(self, conversation: ConversationId, whole: Path) -> None:
        # In turn: the blob is neither deleted nor written between the check and the renaming.
        async with self._turn(conversation), self._tallies.held(conversation) as tally:
            await to_the_end(_quarantine(whole, tally))

    def _note_bytes(self, conversation: ConversationId, size: int, files: int) -> None:
        if self._quota is not None:
            self._quota.set_blobs(conversation, self._folder.name, size, files)

    def _overdue(self, now_s: float, failed: list[OSError]) -> dict[ConversationId, list[Path]]:
        """List what is overdue; add the errors of folders that can't be looked at to `failed`."""
        found = {}
        for conversation, scope in _scopes(self._folder).items():
            try:
                files = [file for file in scope.iterdir() if self._is_overdue(file, now_s)]
            except FileNotFoundError:  # the folder was deleted meanwhile
                continue
            except OSError as error:
                failed.append(error)
                continue
            if files:
                found[conversation] = files
        return found

    def _is_overdue(self, file: Path, now_s: float) -> bool:
        lifetime_s = self.lifetimes_s.get(file.suffix)
        try:
            return lifetime_s is not None and now_s - file.stat().st_mtime >= lifetime_s
        except FileNotFoundError:
            return False

    def _unlink_overdue(
        self, files: Iterable[Path], now_s: float, gone: dict[str, int], failed: list[OSError]
    ) -> None:
        """Delete files; add the names and bytes of those that are gone to `gone`.

        Errors of the others are added to `failed`.
        """
        for file in files:
            # Since it was found, an upload may have gone on, or a later time been set.
            try:
                if self._is_overdue(file, now_s):
                    with contextlib.suppress(StoreLocked):
                        gone[file.name] = unlink(file) or 0
            except OSError as error:
                failed.append(error)


async def _quarantine(whole: Path, tally: Tally) -> None:
    size = await in_thread(quarantine, whole)
    if size is not None:
        tally.set_aside(whole.name, size)
        await in_thread(tally.folder.sync)


def _scopes(folder: Path) -> dict[ConversationId, Path]:
    """Return the folder of each conversation that has one."""
    found = {}
    for scope in folder.iterdir() if folder.is_dir() else ():
        with contextlib.suppress(ValueError):  # not a folder of ours
            found[ConversationId(bytes.fromhex(scope.name))] = scope
    return found


def _usage(folder: Path) -> dict[ConversationId, tuple[int, int]]:
    """Return the bytes and the files of each conversation."""
    sizes = {conversation: file_sizes(scope) for conversation, scope in _scopes(folder).items()}
    return {conversation: (sum(of.values()), len(of)) for conversation, of in sizes.items()}


def _delete(folder: Path) -> None:
    if folder.is_dir():
        shutil.rmtree(folder)
    if folder.parent.is_dir():  # also for a process that was killed before it did so
        sync_folder(folder.parent)
