"""Files of checkpoints: opened private, appended to, read within bounds (spec/08-checkpoint §3).

Anyone may delete or add files at any time, and disks fail. A file that can't be examined
counts as absent here, and is found broken when it is read.
"""

import errno
import os
import shutil
import stat
from contextlib import suppress
from io import BufferedReader, FileIO
from pathlib import Path

from blake3 import blake3

from model_host.errors import CheckpointCorrupt, CheckpointDiskFull, CheckpointWriteFailed
from model_host.kv import Bytes, Piece

PACK_BYTES_MAX = 64 << 20
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class NewFiles:
    """The files written for a checkpoint that has no manifest yet, to be undone on failure."""

    def __init__(self) -> None:
        """Start with none."""
        self._sizes: dict[Path, int] = {}

    def __contains__(self, path: Path) -> bool:
        return path in self._sizes

    def add(self, path: Path) -> int:
        """Note a file before it is written; return its present size."""
        size = path.stat().st_size if path.exists() else 0
        self._sizes.setdefault(path, size)
        return size

    def replaced(self, path: Path) -> None:
        """Note a file that took the place of one with the same name, if there was one."""
        self._sizes[path] = 0

    def sync(self) -> None:
        """Make the bytes of all files durable. Raises OSError."""
        for path in self._sizes:
            with open_file(path, "a") as file:
                os.fsync(file.fileno())

    def undo(self) -> None:
        """Truncate each file to its former size; remove it if it wasn't there."""
        for path, size in self._sizes.items():
            # Files that can't be undone on a failing disk are unreferenced, and pruned later.
            with suppress(OSError):
                if size:
                    os.truncate(path, size)
                else:
                    path.unlink(missing_ok=True)


def write_error(error: OSError) -> CheckpointWriteFailed:
    """Return the typed error behind a failed write."""
    kind = CheckpointDiskFull if error.errno in _FULL else CheckpointWriteFailed
    where = f"{error.filename}: " if isinstance(error.filename, str) else ""
    return kind(f"Writing a checkpoint failed: {where}{error.strerror}.")


def open_file(path: Path, mode: str) -> FileIO:
    """Open an unbuffered file, private if it is new.

    A pipe in its place waits for nobody: it is refused to write to, and empty to read.
    """

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NONBLOCK, 0o600)

    return FileIO(path, mode, opener=opener)


def read_first(path: Path, bytes_max: int) -> bytes:
    """Return a file's first bytes, at most `bytes_max`; none of an irregular one. Raises OSError.

    Damage may make a file as long as the disk allows, and longer than memory.
    """
    with BufferedReader(open_file(path, "r")) as file:
        state = os.fstat(file.fileno())
        if not stat.S_ISREG(state.st_mode):
            return b""  # a device may never end
        return file.read(min(state.st_size, bytes_max))


def write_all(file: FileIO, data: bytes | memoryview) -> None:
    """Write all bytes; one call may write only a part."""
    view = memoryview(data)
    while view:
        view = view[file.write(view) or 0 :]


def read_piece(file: FileIO, piece: Piece, payload: Bytes) -> None:
    """Fill `payload` with a piece's bytes and check them. Raises CheckpointCorrupt."""
    if piece.length != payload.nbytes:
        raise CheckpointCorrupt("a piece has another length than its tokens have.")
    file.seek(piece.offset)
    view, at = payload.data, 0
    while at < piece.length:
        count = file.readinto(view[at:])
        if not count:
            raise CheckpointCorrupt("a file ends inside a piece.")
        at += count
    if blake3(payload.data).digest() != piece.blake3:
        raise CheckpointCorrupt("a piece's bytes aren't those that were written.")


def drop(path: Path) -> None:
    """Remove a file; if the file system refuses, it is found broken again later."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def packs(folder: Path) -> list[tuple[int, Path]]:
    """Return the pack files with their numbers, the last one last."""
    named = (p for p in listed(folder) if p.suffix == ".pack")
    return sorted((int(p.stem), p) for p in named if p.stem.isascii() and p.stem.isdecimal())


def pack_for(folder: Path, size: int, first: int) -> Path:
    """Return the pack file to append `size` bytes to, numbered `first` or later."""
    number, path = max(packs(folder), default=(-1, folder))
    if number >= first and path.stat().st_size + size <= PACK_BYTES_MAX:
        return path
    return folder / f"{max(first, number + 1):08d}.pack"


def listed(folder: Path) -> list[Path]:
    """Return the paths in a folder."""
    with suppress(OSError):
        return list(folder.iterdir())
    return []


def manifests(folder: Path) -> list[Path]:
    """Return the paths of a folder's manifests."""
    return [path for path in listed(folder) if path.suffix == ".manifest"]


def changed_ns(path: Path) -> int:
    """Return the time in ns at which a file was last written or, for a manifest, restored from."""
    with suppress(OSError):
        return path.stat().st_mtime_ns
    return 0


def folder_bytes(folder: Path) -> int:
    """Return the bytes of all files in a folder."""
    total = 0
    for path in listed(folder):
        with suppress(OSError):
            total += path.stat().st_size
    return total


def last_used_ns(folder: Path) -> int:
    """Return the time in ns at which a checkpoint of the folder was last written or restored."""
    return max(map(changed_ns, manifests(folder)), default=0)
