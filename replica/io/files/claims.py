"""Exclusive claims among the processes on one store, released by the kernel when one ends.

A claim is a lock on one byte of a file beside the store. The byte's offset is a digest of
the claim's name. The locks belong to the open file, so that they outlive whoever serves the
store, and two replicas in one process exclude each other too (DECISIONS D343).
"""

import fcntl
import os
import struct
from collections import Counter
from pathlib import Path

from replica.errors import ReplicaClosed
from replica.ids import tagged_sha256
from replica.io.files.disk import FILE_MODE, typed_errors
from replica.io.process import close_file, own_file

CLAIM_TAG = b"antiphon/v1/claim"
_LOCK = struct.Struct("hhqqi4x")
"""`struct flock`: type, whence, start, length, process."""
_OFFSET_BITS = 62


class Claims:
    """The claims of one replica on one store."""

    def __init__(self, store: Path) -> None:
        """Claim nothing yet; the file is made with the first claim."""
        self._path = store.with_name(f"{store.name}.claims")
        self._file: int | None = None
        self._held: Counter[int] = Counter()
        self._is_closed = False

    def claim(self, name: bytes) -> bool:
        """Claim a name; False if another process holds it. A claim of one's own counts twice.

        Raises ReplicaClosed behind `close`.
        """
        offset = _offset_of(name)
        if not self._held[offset] and not self._lock(offset, fcntl.F_WRLCK):
            return False
        self._held[offset] += 1
        return True

    def is_held(self, name: bytes) -> bool:
        """Say whether this replica holds a claim now."""
        return bool(self._held[_offset_of(name)])

    def is_claimed(self, name: bytes) -> bool:
        """Say whether another process holds a claim now."""
        offset = _offset_of(name)
        if self._held[offset]:
            return False
        with typed_errors():
            asked = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, offset, 1, 0)
            kind, *_ = _LOCK.unpack(fcntl.fcntl(self._opened(), fcntl.F_OFD_GETLK, asked))
        return bool(kind != fcntl.F_UNLCK)

    def release(self, name: bytes) -> None:
        """Release a claim, once for each time it was claimed; behind `close` all are released."""
        if self._is_closed:
            return
        offset = _offset_of(name)
        self._held[offset] -= 1
        if not self._held[offset]:
            del self._held[offset]
            self._lock(offset, fcntl.F_UNLCK)

    def close(self) -> None:
        """Release all claims."""
        self._is_closed = True
        self._held.clear()
        if self._file is not None:
            close_file(self._file)
            self._file = None

    def _opened(self) -> int:
        if self._is_closed:
            raise ReplicaClosed
        if self._file is None:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            self._file = own_file(os.open(self._path, flags, FILE_MODE))
        return self._file

    def _lock(self, offset: int, kind: int) -> bool:
        with typed_errors():
            wanted = _LOCK.pack(kind, os.SEEK_SET, offset, 1, 0)
            try:
                fcntl.fcntl(self._opened(), fcntl.F_OFD_SETLK, wanted)
            except (BlockingIOError, PermissionError):  # EAGAIN or EACCES: it is held
                return False
        return True


def _offset_of(name: bytes) -> int:
    digest = tagged_sha256(CLAIM_TAG, name)
    return int.from_bytes(digest[:8], "little") >> (64 - _OFFSET_BITS)
