"""Programs that are forked from a process which has imported them, to save them the imports.

    forks = Forks("syncd.io")
    hub = forks.start(["syncd", "--listen", "127.0.0.1:0"], os.environ, (stdin, stdout, stderr))

Each runs as `python -m` would run it, in a session of its own, and ends as any process: by
itself or by a signal. The imports are those of a command, a second, or of a host, four.
"""

import atexit
import fcntl
import importlib
import json
import os
import runpy
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parents[2]
NUMBER = struct.Struct("i")
Streams = tuple[int, int, int]
"""Descriptors of standard input, output and error."""


class Forked:
    """A process that a `Forks` has started; it is there, if ended, until it is waited for."""

    def __init__(self, status: socket.socket) -> None:
        """Read its id from `status`, on which its exit code follows."""
        self._status = status
        (self.pid,) = NUMBER.unpack(status.recv(NUMBER.size))
        self._code: int | None = None

    def wait(self, timeout_s: float | None = None) -> int:
        """Wait for its end; return the exit code, negative for a signal. Raises TimeoutError."""
        if self._code is None:
            self._status.settimeout(timeout_s)
            (self._code,) = NUMBER.unpack(self._status.recv(NUMBER.size))
            self._status.shutdown(socket.SHUT_WR)
            assert self._status.recv(1) == b"", "nothing follows: the process is gone"
            self._status.close()
        return self._code

    @property
    def returncode(self) -> int | None:
        """Its exit code, None while it runs."""
        try:
            return self.wait(0)
        except BlockingIOError:
            return None

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it was waited for."""
        if self._code is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)


class Forks:
    """Starts processes that have imported some modules."""

    def __init__(self, *modules: str) -> None:
        """Name the modules; the first start imports them."""
        self._modules = modules
        self._server: socket.socket | None = None

    @classmethod
    def lent(cls, server: socket.socket) -> Self:
        """Return those that another process has lent by this socket."""
        forks = cls()
        forks._server = server
        return forks

    def lend(self) -> int:
        """Return a descriptor by which a process that inherits it can start these, too."""
        self._server = self._server or self._connect()
        return self._server.fileno()

    def start(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        streams: Streams,
        *,
        is_terminal: bool = False,
    ) -> Forked:
        """Run a module with arguments; where `is_terminal`, its input is its terminal."""
        server = self._server = self._server or self._connect()
        request = json.dumps([argv, dict(environment), str(Path.cwd()), is_terminal]).encode()
        ours, theirs = socket.socketpair()
        with theirs:
            passed = [*streams, theirs.fileno()]
            socket.send_fds(server, [NUMBER.pack(len(request))], passed)
            server.sendall(request)
        return Forked(ours)

    def _connect(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            argv = [sys.executable, "-m", __name__, str(theirs.fileno()), *self._modules]
            process = subprocess.Popen(
                argv, cwd=ROOT, pass_fds=[theirs.fileno()], start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            )  # fmt: skip
        atexit.register(process.wait)
        atexit.register(ours.close)  # which ends it, and is done first
        return ours


def serve(server: socket.socket, modules: Sequence[str]) -> None:
    """Import the modules; then start a process for each request, until there are no more."""
    for name in modules:
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who wait
    while True:
        size, passed, _, _ = socket.recv_fds(server, NUMBER.size, 4)
        if not size:
            return
        request = server.recv(*NUMBER.unpack(size), socket.MSG_WAITALL)
        *streams, status = passed
        if os.fork() == 0:
            server.close()
            _start(json.loads(request), streams, status)
            return
        for descriptor in passed:
            os.close(descriptor)


def _start(request: list[Any], streams: list[int], status: int) -> None:
    """Fork the process, and report its end; return in that process alone, at its end."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    process = os.fork()
    if process == 0:
        os.close(status)
        _run(*request, streams)
        return
    for descriptor in streams:
        os.close(descriptor)
    os.write(status, NUMBER.pack(process))
    watching = threading.Thread(target=_kill_when_left, args=(process, status))
    watching.start()
    ended = os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)  # its id stays its own
    with suppress(BrokenPipeError):
        os.write(status, NUMBER.pack(_exit_code(ended)))
    watching.join()  # until somebody has waited for it
    os.waitpid(process, 0)
    os._exit(0)


def _kill_when_left(process: int, status: int) -> None:
    """Kill a process whose end nobody waits for any more; one that has ended stays as it is."""
    with suppress(ConnectionResetError):
        os.read(status, 1)
    os.kill(process, signal.SIGKILL)


def _exit_code(ended: Any) -> int:
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def _run(
    argv: list[str], environment: dict[str, str], folder: str, is_terminal: bool, streams: list[int]
) -> None:
    os.setsid()
    if is_terminal:
        fcntl.ioctl(streams[0], termios.TIOCSCTTY, 0)
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # the environment names it
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False, errors="backslashreplace")
    sys.argv = argv
    runpy.run_module(argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:])
