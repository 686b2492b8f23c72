"""Digests of model files, computed once per process (spec/07-host §1). Standard library only.

None is kept for the next start: size and times can be set to any value by whoever may write
the file, and another file would then go by the old digest (DECISIONS D181).
"""

import hashlib
import os
from pathlib import Path

from model_host.engine.regular_file import open_regular

_digests: dict[tuple[int, ...], bytes] = {}


def file_sha256(path: Path) -> bytes:
    """Return the SHA-256 of a file, 32 bytes; computed once in this process while it is the same.

    A write changes the time of the last change of status, which programs can't set.
    """
    with open_regular(path) as file:
        stat = os.fstat(file.fileno())
        key = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
        if key not in _digests:
            _digests[key] = hashlib.file_digest(file, "sha256").digest()
    return _digests[key]
