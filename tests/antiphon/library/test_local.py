"""`antiphon.local` says what happens to the daemons that it started."""

import asyncio
import logging
import os
import signal
from pathlib import Path

from antiphon import aio
from tests.antiphon.cli.processes import HOST_MODULE


class _Queued(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: asyncio.Queue[str] = asyncio.Queue()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.put_nowait(record.getMessage())


def _child(module: str) -> int:
    """Return the process id of this process's child that runs a module."""
    for listed in Path("/proc/self/task").glob("*/children"):
        for pid in map(int, listed.read_text().split()):
            if module in Path(f"/proc/{pid}/cmdline").read_text().split("\0"):
                return pid
    raise AssertionError(f"no child runs {module}")


async def test_a_daemon_that_ends_is_started_again_and_the_logger_is_told(tmp_path: Path) -> None:
    logger, said = logging.getLogger("antiphon"), _Queued()
    logger.addHandler(said)
    try:
        async with aio.local(tmp_path, host_module=HOST_MODULE) as me, asyncio.timeout(60):
            os.kill(_child("syncd"), signal.SIGKILL)
            while "the hub ended (SIGKILL)" not in await said.lines.get():
                pass
            while "the hub is back" not in await said.lines.get():
                pass
            assert await me.sync()
    finally:
        logger.removeHandler(said)
