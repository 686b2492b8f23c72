"""Files that are opened only if they are regular ones. Standard library only.

A pipe waits for a writer when it is opened, and a device may never end: a path that names one
would hold the host up for ever.
"""

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path


def open_regular(path: Path) -> BufferedReader:
    """Open a file to read its bytes. Raises OSError, also for what is no regular file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")  # which a folder refuses without its name
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is no regular file", str(path))
