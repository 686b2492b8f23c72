"""Archives as files without a name, and their way into the store (spec/08-checkpoint §8)."""

import asyncio
import hashlib
import os
import tempfile
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

import structlog

from model_host.errors import (
    ArchiveForeign,
    ArchiveInvalid,
    CheckpointCorrupt,
    CheckpointDiskFull,
    CheckpointWriteFailed,
)
from model_host.io.files.checkpoint_files import Checkpoints
from model_host.io.files.pack_files import write_all
from model_host.kv import (
    ARCHIVE_CHUNK_BYTES,
    ARCHIVE_HEADER_BYTES,
    ARCHIVE_SALT_BYTES,
    Archive,
    Manifest,
    encrypt_archive,
)
from replica.errors import StoreError
from replica.ids import ConversationId, Digest
from replica.io import make_folder, to_the_end, typed_errors
from replica.refusals import StoreFull

log = structlog.get_logger()

_SUFFIX = ".archive"


def prepared_folder(folder: Path) -> Path:
    """Return the folder of such files, created, without what a crash left.

    It is part of a cache: what can't be made, read or removed is logged, and fails each archive
    alone.
    """
    try:
        make_folder(folder)
        found = list(folder.iterdir())
    except OSError as error:
        log.warning("no archive can pass through", path=str(folder), detail=str(error))
        return folder
    for left in found:
        if left.suffix == _SUFFIX:
            _remove(left)
    return folder


def _remove(left: Path) -> None:
    try:
        left.unlink(missing_ok=True)
    except OSError as error:
        log.warning("archive not removed", path=str(left), detail=str(error))


def unnamed_file(folder: Path) -> FileIO:
    """Open a new file that is gone once it is closed. Raises StoreError.

    Called without a thread, which would leave the file open if its caller were cancelled.
    """
    with typed_errors():
        make_folder(folder)  # it is part of a cache, which may be deleted at any time
        descriptor, name = tempfile.mkstemp(suffix=_SUFFIX, dir=folder)
        Path(name).unlink()
    return FileIO(descriptor, "r+")


async def append_to_archive(file: FileIO, pages: Checkpoints, data: bytes) -> None:
    """Write all bytes, in a thread; checkpoints make room. Raises StoreFull or StoreError."""
    with typed_errors():
        await to_the_end(asyncio.to_thread(_write_beside, file, pages, data))


def write_archive(
    file: FileIO, pages: Checkpoints, ring_key: bytes, conversation: bytes, manifest: Manifest
) -> tuple[Digest, int]:
    """Write the archive of a checkpoint; return its SHA-256 and its size in bytes.

    Raises CheckpointCorrupt or StoreError.
    """
    payloads = (pages.read(conversation, piece) for piece in manifest.pieces)
    salt = os.urandom(ARCHIVE_SALT_BYTES)
    hasher, size = hashlib.sha256(), 0
    for part in encrypt_archive(ring_key, conversation, salt, manifest, payloads):
        hasher.update(part)
        size += len(part)
        with typed_errors():
            _write_beside(file, pages, part, conversation)
    return Digest(hasher.digest()), size


def store_archive(
    file: FileIO,
    pages: Checkpoints,
    ring_key: bytes,
    conversation: ConversationId,
    namespace: bytes,
    token_bytes: int,
    expected: tuple[int, bytes] | None = None,
) -> Manifest:
    """Store the checkpoint of an archive that has arrived as a whole; nothing of a bad one.

    `expected` are its tokens and its lineage key, where they are known. Raises ArchiveInvalid,
    ArchiveForeign, or what `Checkpoints.add` raises.
    """
    file.seek(0)
    header = file.read(ARCHIVE_HEADER_BYTES) or b""
    archive = Archive(ring_key, namespace, header, _chunks(file))
    if archive.conversation != conversation:
        raise ArchiveInvalid("It is of another conversation.")
    manifest = archive.manifest()
    if manifest.namespace != namespace:
        raise ArchiveForeign
    if expected is not None and expected != (manifest.tokens, manifest.lineage):
        raise ArchiveInvalid("It holds other tokens than its entry states.")
    starts = (0, *(piece.stop for piece in manifest.pieces[:-1]))
    for start, piece in zip(starts, manifest.pieces, strict=True):
        if piece.length != (piece.stop - start) * token_bytes:
            raise ArchiveInvalid("A payload has another length than its tokens.")
    try:
        return pages.add(conversation, manifest, archive.payloads(manifest))
    except CheckpointCorrupt as error:
        raise ArchiveInvalid(error.detail) from error


def _write_beside(
    file: FileIO, pages: Checkpoints, data: bytes, conversation: bytes | None = None
) -> None:
    """Write all bytes, for which the checkpoints of others make room.

    Raises StoreFull, StoreError or OSError.
    """
    try:
        pages.make_room(len(data), beside=conversation)
    except CheckpointDiskFull as error:
        raise StoreFull(error.detail) from error
    except CheckpointWriteFailed as error:
        raise StoreError(error.detail) from error
    write_all(file, data)


def _chunks(file: FileIO) -> Iterator[bytes]:
    """Yield the chunks of an archive behind its header."""
    buffer = bytearray(ARCHIVE_CHUNK_BYTES)
    while True:
        at = 0
        while at < ARCHIVE_CHUNK_BYTES and (count := file.readinto(memoryview(buffer)[at:])):
            at += count
        if at:
            yield bytes(buffer[:at])
        if at < ARCHIVE_CHUNK_BYTES:
            return
