"""The files of blobs: their names, their locks, and what is read from them (spec/04-link §8).

    <folder>/<conversation>/<digest>                a whole blob
    <folder>/<conversation>/<digest>.<size>.part    an upload in progress
    <folder>/<conversation>/<digest>.bad            bytes that no longer match

The functions wait for the disk; `in_thread` runs them. An open upload holds a lock on its file,
so that no other process writes to it or deletes it.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import ParamSpec, TypeVar

from replica import limits
from replica.ids import ID_BYTES, short
from replica.io.blobs.blob_folder import BlobFolder
from replica.io.files import FILE_MODE, make_folder, typed_errors
from replica.io.process import get_logger, to_the_end
from replica.refusals import ArgumentInvalid, BlobMissing, BlobOffsetInvalid, StoreLocked

_P = ParamSpec("_P")
_R = TypeVar("_R")

_log = get_logger()


@dataclass(frozen=True, slots=True)
class BlobState:
    """The durable bytes of a blob; `size_bytes` is 0 if unknown."""

    complete: bool
    committed_bytes: int
    size_bytes: int


async def in_thread(work: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
    """Run file work in a thread; if cancelled, wait for it, so that no file has two users.

    Raises StoreError for the errors of the disk.
    """
    with typed_errors():
        return await to_the_end(asyncio.to_thread(work, *args, **kwargs))


# --- names ------------------------------------------------------------------------


def name_of(id_: bytes) -> str:
    """Return an id as a file name. Checks its length, since peers choose it."""
    if len(id_) != ID_BYTES:
        raise ArgumentInvalid(f"ids and digests have {ID_BYTES} bytes, not {len(id_)}")
    return id_.hex()


def part_name(blob: str, size: int) -> str:
    """Return the file name of an upload of `size` bytes in progress."""
    return f"{blob}.{size}.part"


def bad_name(blob: str) -> str:
    """Return the file name of bytes that no longer match."""
    return f"{blob}.bad"


def announced_in(name: str) -> tuple[str, int] | None:
    """Return the blob and the final size of an upload's file name; None for other files."""
    blob, _, rest = name.partition(".")
    size, _, ending = rest.partition(".")
    return (blob, int(size)) if ending == "part" and size.isdecimal() else None


# --- folders ----------------------------------------------------------------------


def file_sizes(folder: Path) -> dict[str, int]:
    """List a folder: the bytes of each file, by name."""
    found = {}
    for file in folder.iterdir() if folder.is_dir() else ():
        with contextlib.suppress(FileNotFoundError):  # another process renamed it
            found[file.name] = file.stat().st_size
    return found


# --- uploads ----------------------------------------------------------------------


def state_of(
    whole: Path, announced: int | None, folder: BlobFolder, *, is_counted: bool
) -> BlobState:
    """Return the state of a blob, of which an upload of `announced` bytes is known, or none.

    A whole blob is counted if its name was there when the folder was listed, or is our own.
    """
    if whole.is_file():
        if not (is_counted and folder.is_synced):
            # A process that renamed it may have been killed before it synced the folder.
            folder.sync()
        size = whole.stat().st_size
        return BlobState(True, size, size)
    if announced is None:
        return BlobState(False, 0, 0)
    try:
        file = FileIO(whole.with_name(part_name(whole.name, announced)))
    except FileNotFoundError:  # expired, or never made because the disk was full
        return BlobState(False, 0, 0)
    with file:
        size = file.seek(0, os.SEEK_END)
        if size:
            # What a killed process wrote may not be durable yet, and what is reported must be.
            os.fsync(file.fileno())
            folder.sync()
        return BlobState(False, size, announced)


def open_part(part: Path) -> FileIO:
    """Open the file of an upload at its end, and lock it; make it if there is none.

    Raises StoreLocked if another process writes it.
    """
    make_folder(part.parent)
    file = FileIO(part, "r+", opener=_open_private)
    try:
        _lock(file, part)
        file.seek(0, os.SEEK_END)
    except BaseException:
        file.close()
        raise
    return file


def set_expiry(file: FileIO, expire_time_ms: int) -> None:
    """Set the Unix time at which a file expires: that of its modification (`ExpiringBlobs`)."""
    time_ns = expire_time_ms * 1_000_000
    os.utime(file.fileno(), ns=(time_ns, time_ns))


def unlink(file: Path) -> int | None:
    """Delete a file; return its bytes, None if there was none.

    Raises StoreLocked if it is an upload that is open.
    """
    try:
        with FileIO(file) as opened:
            _lock(opened, file)
            size = opened.seek(0, os.SEEK_END)
            file.unlink()
    except FileNotFoundError:
        return None
    return size


def _lock(file: FileIO, path: Path) -> None:
    """Lock a file until it is closed. Raises StoreLocked if another open file has the lock."""
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Between opening and locking, the holder may have renamed or deleted the file.
        is_same = path.stat().st_ino == os.fstat(file.fileno()).st_ino
    except (BlockingIOError, FileNotFoundError):
        is_same = False
    if not is_same:
        raise StoreLocked("another process writes this blob")


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CREAT, FILE_MODE)


# --- whole blobs ------------------------------------------------------------------


def open_whole(whole: Path, offset: int) -> tuple[FileIO, int]:
    """Open a whole blob at `offset`; return it with its size in bytes.

    Raises BlobMissing, BlobOffsetInvalid.
    """
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


def read_chunk(file: FileIO, hasher: "hashlib._Hash | None") -> bytes:
    """Read a piece, empty at the end; pass it to the hasher."""
    chunk = file.read(limits.BLOB_CHUNK_BYTES)
    if hasher is not None:
        hasher.update(chunk)
    return chunk


def pieces_of(whole: Path) -> Iterator[bytes]:
    """Yield the bytes of a whole blob, which are not verified. Raises BlobMissing, StoreError."""
    with typed_errors():
        file, _ = open_whole(whole, 0)
        with file:
            while chunk := read_chunk(file, None):
                yield chunk


def sha256(path: Path) -> bytes:
    """Return the digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def quarantine(whole: Path) -> int | None:
    """Rename a blob whose bytes no longer match; return its bytes, None if they match.

    Its new name is durable once the folder was synced.
    """
    # Another reader may have quarantined it already, and a writer written sound bytes since.
    if not whole.is_file() or sha256(whole).hex() == whole.name:
        return None
    _log.error(
        "blob quarantined",
        conversation=short(bytes.fromhex(whole.parent.name)),
        blob=short(bytes.fromhex(whole.name)),
    )
    bad = whole.with_name(bad_name(whole.name))
    size = whole.stat().st_size
    whole.replace(bad)
    return size
