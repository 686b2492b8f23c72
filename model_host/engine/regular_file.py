"""Files that are regular ones, and files that are whole. Standard library only.

A pipe waits for a writer when it is opened, and a device may never end: a path that names one
would hold the host up for ever.
"""

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import IO


def open_regular(path: Path) -> BufferedReader:
    """Open a file to read its bytes. Raises OSError, also for what is no regular file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")  # which a folder refuses without its name
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is no regular file", str(path))


@contextmanager
def written_whole(path: Path, suffix: str) -> Iterator[IO[bytes]]:
    """Open a file that takes the name `path` once it is whole and durable.

    Until then its name ends with `suffix`. Of one that fails nothing stays. Raises OSError.
    """
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=suffix, delete=False) as file:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise
