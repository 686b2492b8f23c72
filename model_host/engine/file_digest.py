"""States and digests of model files (spec/07-host §1). Standard library only.

A digest is computed once per process. None is kept for the next start: size and times can be
set to any value by whoever may write the file, and another file would then go by the old
digest (DECISIONS D181).
"""

import hashlib
import os
from pathlib import Path

from model_host.engine.regular_file import open_regular

FileState = tuple[int, ...]
"""Equal ones are of the same bytes: a write or a rename changes the time of the last change of
status, which programs can't set."""

_digests: dict[FileState, bytes] = {}


def _state(stat: os.stat_result) -> FileState:
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


def file_state(path: Path) -> FileState | None:
    """Return the state of what a path names now; None if it can't be asked for."""
    try:
        return _state(path.stat())
    except OSError:
        return None


def file_sha256(path: Path) -> bytes:
    """Return the SHA-256 of a file, 32 bytes; computed once in this process for each state."""
    with open_regular(path) as file:
        key = _state(os.fstat(file.fileno()))
        if key not in _digests:
            _digests[key] = hashlib.file_digest(file, "sha256").digest()
    return _digests[key]
