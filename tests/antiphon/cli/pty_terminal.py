"""A user at a pseudo-terminal: types, reads the output, presses Ctrl-C.

The command is forked from a process that has imported it (tests/support/forked.py).
"""

import codecs
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from tests.antiphon.cli.virtual_screen import VirtualScreen
from tests.support.forked import Forked
from tests.support.forked_program import PROGRAMS

WAIT_S = 30.0
CTRL_C, CTRL_D, CTRL_Z = "\x03", "\x04", "\x1a"


class PtyTerminal:
    """One `antiphon` on its own terminal; `shown` has its output."""

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        columns: int = 80,
        rows: int = 40,
    ) -> None:
        self.shown = ""
        self._screen, self._fed = VirtualScreen(columns, rows), 0
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._read = 0
        # The environment of the tests may define the size of another terminal.
        kept = {n: v for n, v in environment.items() if n not in ("COLUMNS", "LINES")}
        self._terminal, inside = pty.openpty()
        fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._process = self._start(arguments, kept, inside)
        os.close(inside)

    def _start(
        self, arguments: Sequence[str], environment: Mapping[str, str], inside: int
    ) -> Forked | subprocess.Popen[bytes]:
        argv, streams = ["antiphon", *arguments], (inside, inside, inside)
        return PROGRAMS.start(argv, environment, streams, is_terminal=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._terminal)

    @property
    def lines(self) -> list[str]:
        """The output without colours and movements of the cursor."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.shown).splitlines()

    @property
    def screen(self) -> VirtualScreen:
        """What the terminal shows."""
        self._screen.feed(self.shown[self._fed :])
        self._fed = len(self.shown)
        return self._screen

    @property
    def has_echo(self) -> bool:
        """Whether the terminal shows what is typed by itself."""
        return bool(termios.tcgetattr(self._terminal)[3] & termios.ECHO)

    def expect_screen(self, words: str) -> None:
        """Read until `words` are on the screen."""
        deadline = time.monotonic() + WAIT_S
        while words not in self.screen.text:
            assert self._take(deadline - time.monotonic()), f"no '{words}' in:\n{self.screen.text}"
        self._read = len(self.shown)

    def type(self, keys: str) -> None:
        """Press keys; a control character is its key."""
        os.write(self._terminal, keys.encode())

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Stop the process meanwhile; what is sent to it arrives all at once."""
        self._process.send_signal(signal.SIGSTOP)
        yield
        self._process.send_signal(signal.SIGCONT)

    def expect(self, words: str) -> None:
        """Read until `words` appear in the unread output."""
        deadline = time.monotonic() + WAIT_S
        while words not in self.shown[self._read :]:
            assert self._take(deadline - time.monotonic()), f"no '{words}' in:\n{self.shown}"
        self._read = self.shown.index(words, self._read) + len(words)

    def ends(self, timeout_s: float = WAIT_S) -> bool:
        """Read until the process has closed the terminal."""
        deadline = time.monotonic() + timeout_s
        while self._take(deadline - time.monotonic()):
            pass
        return time.monotonic() < deadline

    def leave(self, keys: str) -> int:
        """Press keys until the process ends; return its exit code.

        A signal between a prompt and the wait for keys behind it shows with the next key only.
        """
        for _ in range(5):
            self.type(keys)
            if self.ends(WAIT_S / 5):
                break
        return self.exit_code()

    def exit_code(self) -> int:
        """Wait for the end of the process."""
        assert self.ends(), f"still running:\n{self.shown}"
        return self._process.wait(WAIT_S)

    def _take(self, timeout_s: float) -> bool:
        """Read the available output; False at the end, or after the timeout."""
        if not select.select([self._terminal], [], [], max(0.0, timeout_s))[0]:
            return False
        try:
            read = os.read(self._terminal, 65536)
        except OSError:  # Linux raises it when the other side has closed
            return False
        self.shown += self._decoder.decode(read)
        return bool(read)


class ShellTerminal(PtyTerminal):
    """A shell with job control on its own terminal, in which `antiphon` is typed."""

    def _start(
        self, arguments: Sequence[str], environment: Mapping[str, str], inside: int
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["setsid", "--ctty", "/bin/sh", "-i", *arguments],
            stdin=inside, stdout=inside, stderr=inside, env={**environment, "PS1": "sh: "},
        )  # fmt: skip
