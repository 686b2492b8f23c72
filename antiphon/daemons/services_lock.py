"""One supervisor per services folder, and none beside daemons of an earlier one.

The lock ends with the process that holds it. Daemons whose supervisor was killed end by
themselves soon after; until then they hold their stores.
"""

import asyncio
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from antiphon.daemons.errors import AlreadyRunning
from replica.io import FILE_MODE, close_file, make_folder, own_file, require_free, typed_errors
from replica.refusals import StoreLocked

LOCK_FILE = "up.lock"
DAEMONS = ("hub", "host")
"""Names of the daemons' folders in the services folder."""
POLL_S = 0.1


@contextmanager
def services_lock(folder: Path) -> Iterator[None]:
    """Hold the folder of hub and host during the block. Raises AlreadyRunning with the pid."""
    with typed_errors():
        make_folder(folder)
        descriptor = own_file(os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, FILE_MODE))
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            pid = os.pread(descriptor, 20, 0).decode(errors="replace").strip()
            raise AlreadyRunning(f"pid {pid} runs a hub and a host in {folder}") from error
        with typed_errors(folder / LOCK_FILE):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        close_file(descriptor)


async def until_stores_are_free(folder: Path, timeout_s: float) -> None:
    """Wait for the end of daemons whose supervisor was killed. Raises AlreadyRunning."""
    end = time.monotonic() + timeout_s
    stores = [folder / name / "log" / "log.db" for name in DAEMONS]
    while True:
        try:
            for path in stores:
                require_free(path)
        except StoreLocked as error:
            if time.monotonic() >= end:
                raise AlreadyRunning(error.detail) from error
            await asyncio.sleep(POLL_S)
        else:
            return
