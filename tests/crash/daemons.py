"""A hub and a host as daemons of a folder, for tests that kill them.

Both are forked: a host that is killed after each token would import torch after each.
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from antiphon.daemons import Daemon
from tests.support.forked import Forks

FORKS = Forks(
    "model_host.engine.torch_engine", "model_host.io.command", "model_host.io.server", "syncd.io"
)


class _Process:
    """A forked process in place of one of asyncio's."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str], log: BinaryIO) -> None:
        stdin, self._supervisor = os.pipe()
        ready, stdout = os.pipe()
        self._forked = FORKS.start(argv, environment, (stdin, stdout, log.fileno()))
        os.close(stdin)
        os.close(stdout)
        self._output = os.fdopen(ready, "rb")
        self.stdout = self
        self.pid = self._forked.pid
        self.send_signal, self.kill = self._forked.send_signal, self._forked.kill

    @property
    def returncode(self) -> int | None:
        return self._forked.returncode

    async def readline(self) -> bytes:
        return await asyncio.to_thread(self._output.readline)

    async def wait(self) -> int:
        code = await asyncio.to_thread(self._forked.wait)
        if not self._output.closed:
            self._output.close()
            os.close(self._supervisor)
        return code


class ForkedDaemon(Daemon):
    """A daemon that is forked from a process which has imported torch."""

    async def _spawn(
        self, argv: Sequence[str], environment: Mapping[str, str], log: BinaryIO
    ) -> _Process:
        return _Process(argv, environment, log)


def hub_daemon(folder: Path, listen: str = "127.0.0.1:0") -> Daemon:
    argv = ["syncd", "--data-dir", str(folder / "hub"), "--listen", listen]
    return ForkedDaemon("hub", folder / "hub.log", lambda: argv)


def host_daemon(folder: Path, hub: str) -> Daemon:
    flags = ["--data-dir", str(folder / "host"), "--hub", hub, "--context-tokens", "1024"]
    argv = ["model_host", "serve", *flags]
    return ForkedDaemon("host", folder / "host.log", lambda: argv)
