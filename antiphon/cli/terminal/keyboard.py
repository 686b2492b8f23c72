"""The keys of a terminal as they are pressed, with a paste between marks."""

import asyncio
import os
import signal
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_PASTE_ON, _PASTE_OFF = "\x1b[?2004h", "\x1b[?2004l"
_READ_BYTES = 65_536
_CTRL_C = b"\x03"


class Keyboard:
    """The bytes typed since the chat began, also before anybody reads them."""

    def __init__(self, descriptor: int) -> None:
        """Keep what is typed at a terminal until `listen`; `begin` first."""
        self._descriptor = descriptor
        self._before = termios.tcgetattr(descriptor)
        self._kept = b""
        self._listener: Callable[[bytes], None] | None = None

    def listen(self, listener: Callable[[bytes], None]) -> None:
        """Call `listener` with what was typed, and from now on; with no bytes at the end."""
        self._listener = listener
        if self._kept:
            listener(self._kept)

    def receive(self, data: bytes) -> None:
        """Deliver bytes of the terminal. Ctrl-C is a signal as long as nobody listens."""
        if self._listener is not None:
            self._listener(data)
        elif _CTRL_C in data or not data:
            os.kill(os.getpid(), signal.SIGINT)
        else:
            self._kept = (self._kept + data)[-_READ_BYTES:]

    def begin(self) -> None:
        """Let keys be bytes, neither echoed nor signals; what was typed before is kept."""
        raw = termios.tcgetattr(self._descriptor)
        raw[0] &= ~(termios.ICRNL | termios.INLCR | termios.IGNCR | termios.IXON)
        raw[3] &= ~(termios.ICANON | termios.ECHO | termios.ISIG | termios.IEXTEN)
        raw[6][termios.VMIN], raw[6][termios.VTIME] = 1, 0
        termios.tcsetattr(self._descriptor, termios.TCSADRAIN, raw)
        sys.stdout.write(_PASTE_ON)
        sys.stdout.flush()

    def end(self) -> None:
        """Leave the terminal as it was."""
        sys.stdout.write(_PASTE_OFF)
        sys.stdout.flush()
        termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)

    def suspend(self) -> None:
        """Stop the processes of this job, as a terminal does for Ctrl-Z; return once they go on.

        Without a shell that could let them go on, the system leaves them running.
        """
        self.end()
        os.kill(0, signal.SIGTSTP)
        self.begin()


@contextmanager
def raw_keyboard() -> Iterator[Keyboard]:
    """Read the bytes of stdin, a terminal, in the running event loop.

    Keys are neither echoed nor signals: Ctrl-C is a byte. Output is unchanged.
    """
    descriptor, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    keyboard = Keyboard(descriptor)

    def read() -> None:
        try:
            data = os.read(descriptor, _READ_BYTES)
        except OSError:  # the terminal is gone
            data = b""
        if not data:
            loop.remove_reader(descriptor)
        keyboard.receive(data)

    keyboard.begin()
    loop.add_reader(descriptor, read)
    try:
        yield keyboard
    finally:
        loop.remove_reader(descriptor)
        keyboard.end()
