"""The cache of converted weights on disk, within a budget (spec/07-host §7, HOST-68).

A cache file is: 8 bytes magic, 8 bytes little-endian header length, 32 bytes BLAKE3 of
everything after them, a JSON header, then raw tensors at offsets that are multiples of 64.
A file that fails a check is never used; it is rebuilt, with a warning. No pickle.

A file's time of modification is that of its last use. An engine holds a shared lock on the
file its weights came from, so that no process removes it meanwhile.
"""

import fcntl
import json
import logging
import mmap
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG
from typing import Any

import numpy as np
import torch
from blake3 import blake3

from model_host.disk_reserve import spare_bytes
from model_host.engine.regular_file import written_whole

log = logging.getLogger(__name__)

BYTES_MAX_DEFAULT = 16 << 30
_STORED = {"bf16": torch.bfloat16, "fp32": torch.float32, "u8": torch.uint8}
_MAGIC = b"ANTWGT1\n"
_HEADER_BYTES_MAX = 1 << 20
_SUFFIX = ".weights"

_TEMPORARY = ".tmp"

Tensors = dict[str, torch.Tensor]


class InUse:
    """Keeps a cache file from eviction, by every process, for as long as this object exists."""

    def __init__(self, path: Path) -> None:
        """Open a file under a lock that all its users share. Raises OSError."""
        self.descriptor = -1
        # A pipe instead of the file is not waited for, and fails the checks.
        self.descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        fcntl.flock(self.descriptor, fcntl.LOCK_SH)

    def __del__(self) -> None:
        """End the lock."""
        if self.descriptor >= 0:
            os.close(self.descriptor)


@dataclass(frozen=True, slots=True)
class CacheFile:
    """One file of the cache."""

    name: str
    nbytes: int
    used_at: float
    """Any clock; the least value is the longest unused file."""


def to_evict(files: Sequence[CacheFile], new_bytes: int, bytes_max: int) -> list[CacheFile] | None:
    """Return the least recently used files whose removal makes room; None if none suffices. Pure.

    A file that would exceed the budget alone is not worth a removal.
    """
    if new_bytes > bytes_max:
        return None
    total = new_bytes + sum(file.nbytes for file in files)
    evicted = []
    for file in sorted(files, key=lambda file: (file.used_at, file.name)):
        if total <= bytes_max:
            break
        evicted.append(file)
        total -= file.nbytes
    return evicted


class WeightsCache:
    """Converted weights by key, in a folder that several hosts may use at once."""

    def __init__(self, folder: Path, bytes_max: int = BYTES_MAX_DEFAULT) -> None:
        """Keep at most `bytes_max` bytes of files under `folder`; never remove one in use.

        The reserve of the disk stays free (DECISIONS D585).
        """
        self._folder = folder / "weights"
        self._bytes_max = bytes_max

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}{_SUFFIX}"

    def read(self, key: str) -> tuple[Tensors, InUse] | None:
        """Return the tensors under a key and a hold on their file, None if there are none."""
        path = self._path(key)
        try:
            in_use = InUse(path)
            tensors = _read(in_use.descriptor)
            os.utime(path)
        except FileNotFoundError:
            log.info("weights cache missing", extra={"path": path})
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("weights cache rebuilt", extra={"path": path, "detail": str(error)})
            return None
        return tensors, in_use

    def write(self, key: str, tensors: Tensors) -> InUse | None:
        """Write a file if it fits, and return a hold on it; a failure is logged."""
        path = self._path(key)
        try:
            header = _header(tensors)
            size = len(header) + sum(_padded(tensor) for tensor in tensors.values()) + 48
            path.parent.mkdir(parents=True, exist_ok=True)
            if not self._make_room(path, size):
                log.warning("weights cache full", extra={"path": path, "bytes": size})
                return None
            _write(path, header, tensors)
            return InUse(path)
        except OSError as error:
            log.warning("weights cache not written", extra={"path": path, "detail": str(error)})
            return None

    def _make_room(self, path: Path, size: int) -> bool:
        """Remove the least recently used files that are not in use; say whether `size` fits."""
        for left, _ in self._listed(_TEMPORARY):
            _remove(left)  # of a process that was killed: one that writes holds a lock
        files = [file for file in self._files() if file.name != path.name]
        disk = shutil.disk_usage(self._folder)
        room = sum(file.nbytes for file in files) + spare_bytes(disk.total, disk.free)
        while True:
            evicted = to_evict(files, size, min(self._bytes_max, room))
            if evicted is None:
                return False
            held = {file.name for file in evicted if not _remove(self._folder / file.name)}
            if not held:
                return True
            # What can't be removed counts, and leaves the less for everything else.
            size += sum(file.nbytes for file in files if file.name in held)
            gone = {file.name for file in evicted}
            files = [file for file in files if file.name not in gone]

    def _files(self) -> list[CacheFile]:
        return [
            CacheFile(path.name, stat.st_size, stat.st_mtime)
            for path, stat in self._listed(_SUFFIX)
        ]

    def _listed(self, suffix: str) -> list[tuple[Path, os.stat_result]]:
        """Return the regular files with a suffix; anything else is logged and stays."""
        found = []
        for path in self._folder.glob(f"*{suffix}"):
            try:
                stat = path.stat()
            except FileNotFoundError:
                continue  # another host removed it
            except OSError as error:
                _log_skipped(path, str(error))
                continue
            if S_ISREG(stat.st_mode):
                found.append((path, stat))
            else:
                _log_skipped(path, "it is no regular file")
        return found


def _log_skipped(path: Path, detail: str) -> None:
    log.warning("weights cache skipped", extra={"path": path, "detail": detail})


def _remove(path: Path) -> bool:
    """Remove a file unless it is in use; say whether it is gone."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
    except BlockingIOError:
        return False
    except FileNotFoundError:
        return True
    except OSError as error:  # as of another user
        _log_skipped(path, str(error))
        return False
    log.info("weights cache evicted", extra={"path": path})
    return True


def _padded(tensor: torch.Tensor) -> int:
    return -(-tensor.nbytes // 64) * 64


def _header(tensors: Tensors) -> bytes:
    """Return names, number formats, shapes and offsets, padded so that the tensors are aligned."""
    header: dict[str, Any] = {}
    at = 0
    for name, tensor in tensors.items():
        dtype = next(key for key, value in _STORED.items() if value is tensor.dtype)
        header[name] = [dtype, list(tensor.shape), at]
        at += _padded(tensor)
    encoded = json.dumps(header).encode()
    return encoded + b" " * (-(len(encoded) + 48) % 64)


def _write(path: Path, header: bytes, tensors: Tensors) -> None:
    """Write a cache file and rename it into place once it is durable."""
    digest = blake3(header)
    with written_whole(path, _TEMPORARY) as file:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX)
        file.write(_MAGIC + len(header).to_bytes(8, "little") + bytes(32) + header)
        for tensor in tensors.values():
            data = tensor.contiguous().view(-1).view(torch.uint8).numpy()
            for piece in (data.data, bytes(-tensor.nbytes % 64)):
                digest.update(piece)
                file.write(piece)
        file.seek(16)
        file.write(digest.digest())


def _read(descriptor: int) -> Tensors:
    """Map a cache file, verify it, and copy its tensors out.

    Copies, so that a file changed after the check can't change a running model. Raises
    OSError, or ValueError, KeyError or TypeError for a file that fails a check.
    """
    with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as data:
        if data[:8] != _MAGIC:
            raise ValueError("wrong magic")
        size = int.from_bytes(data[8:16], "little")
        if not 0 < size <= min(_HEADER_BYTES_MAX, len(data) - 48):
            raise ValueError("wrong header length")
        with memoryview(data) as view, view[48:] as body:
            if blake3(body, max_threads=blake3.AUTO).digest() != view[16:48]:
                raise ValueError("wrong digest")
        header = json.loads(data[48 : 48 + size])
        tensors, end = {}, 48 + size
        for name, (dtype, shape, at) in header.items():
            tensor = torch.empty(shape, dtype=_STORED[dtype])
            start = 48 + size + at
            if start + tensor.nbytes > len(data):
                raise ValueError(f"{name} lies outside the file")
            flat = tensor.view(-1).view(torch.uint8).numpy()
            flat[:] = np.frombuffer(data, np.uint8, tensor.nbytes, start)
            tensors[name], end = tensor, start + _padded(tensor)
        # The digest does not cover the header's length: another one moves all tensors.
        if end != len(data):
            raise ValueError("wrong header length")
        return tensors
