"""Programs that are forked, with pipes as their streams, and daemons of these.

    with ForkedProgram(PROGRAMS, ["antiphon", "chat"], environment) as chat:
        print("hello", file=chat.stdin, flush=True)

A program is used as a `subprocess.Popen` of text is, and ends where its block ends.
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import BinaryIO, Self

from antiphon.daemons import Daemon
from tests.support.forked import Forks

PROGRAMS = Forks(
    "antiphon.cli.main", "grpc.aio", "replica.io.driver.replica", "syncd.io",
    "tests.support.scripted_host", "model_host.io.command",
)  # fmt: skip
"""Starts the command, the hub, the scripted host, and `python -m model_host` without torch."""
END_S = 60.0


class ForkedProgram:
    """A module that runs in a process of its own; its streams are pipes."""

    def __init__(self, forks: Forks, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start the module that `argv` begins with, in the working directory."""
        (stdin, given), (shown, stdout), (said, stderr) = (os.pipe() for _ in range(3))
        self._forked = forks.start(argv, environment, (stdin, stdout, stderr))
        for descriptor in (stdin, stdout, stderr):
            os.close(descriptor)
        self.stdin = os.fdopen(given, "w", errors="surrogateescape")
        self.stdout, self.stderr = os.fdopen(shown), os.fdopen(said)
        self.pid, self.wait = self._forked.pid, self._forked.wait
        self.send_signal, self.kill = self._forked.send_signal, self._forked.kill

    @property
    def returncode(self) -> int | None:
        """Its exit code, None while it runs."""
        return self._forked.returncode

    def communicate(self, given: str = "", timeout_s: float = END_S) -> tuple[str, str]:
        """Write its last input, and read its output until it ends. Raises TimeoutError."""
        with ThreadPoolExecutor() as readers, self.stdout, self.stderr:
            shown, said = readers.submit(self.stdout.read), readers.submit(self.stderr.read)
            try:
                with suppress(BrokenPipeError), self.stdin:
                    self.stdin.write(given)
                self.wait(timeout_s)
            except TimeoutError:
                self.kill()
                raise
            return shown.result(), said.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Kill it, unless it has ended."""
        self.kill()
        self.wait(END_S)
        for stream in (self.stdin, self.stdout, self.stderr):
            stream.close()


class _Process:
    """A forked process in place of one of asyncio's."""

    def __init__(
        self, forks: Forks, argv: Sequence[str], environment: Mapping[str, str], log: BinaryIO
    ) -> None:
        stdin, self._supervisor = os.pipe()
        ready, stdout = os.pipe()
        self._forked = forks.start(argv, environment, (stdin, stdout, log.fileno()))
        os.close(stdin)
        os.close(stdout)
        self._output = os.fdopen(ready, "rb")
        self.stdout = self
        self._ended: asyncio.Future[int] | None = None
        self.pid = self._forked.pid
        self.send_signal, self.kill = self._forked.send_signal, self._forked.kill

    @property
    def returncode(self) -> int | None:
        if self._ended is None:
            return self._forked.returncode
        return self._ended.result() if self._ended.done() else None

    async def readline(self) -> bytes:
        return await asyncio.to_thread(self._output.readline)

    async def wait(self) -> int:
        """Wait, in one thread for all who do, also when one of them is cancelled."""
        if self._ended is None:
            self._ended = asyncio.ensure_future(asyncio.to_thread(self._forked.wait))
        code = await asyncio.shield(self._ended)
        if not self._output.closed:
            self._output.close()
            os.close(self._supervisor)
        return code


class ForkedDaemon(Daemon):
    """A daemon that is forked; the words up to `-m` of its command line are left out."""

    forks = PROGRAMS

    async def _spawn(
        self, argv: Sequence[str], environment: Mapping[str, str], log: BinaryIO
    ) -> _Process:
        module = argv.index("-m") + 1 if "-m" in argv else 0
        return _Process(self.forks, argv[module:], environment, log)
