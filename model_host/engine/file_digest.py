"""Digests of model files, computed once (spec/07-host §1). Standard library only."""

import hashlib
from pathlib import Path

_digests: dict[tuple[str, int, int], bytes] = {}


def file_sha256(path: Path) -> bytes:
    """Return the SHA-256 of a file, 32 bytes; cached by (path, size, mtime) in this process."""
    stat = path.stat()
    key = (str(path.resolve()), stat.st_size, stat.st_mtime_ns)
    if key not in _digests:
        with path.open("rb") as file:
            _digests[key] = hashlib.file_digest(file, "sha256").digest()
    return _digests[key]
