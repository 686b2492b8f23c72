"""A command run in this process, on a pseudo-terminal of a given width."""

import os
import pty
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

from typer.main import get_command

from antiphon.cli.main import app
from tests.antiphon.cli.virtual_screen import VirtualScreen

COMMAND = get_command(app)


def screen_of(arguments: list[str], variables: Mapping[str, str], columns: int) -> str:
    """Return what a terminal of `columns` shows after `antiphon ARGUMENTS`."""
    return screen_after(lambda: COMMAND(arguments, prog_name="antiphon"), variables, columns)


def screen_after(work: Callable[[], object], variables: Mapping[str, str], columns: int) -> str:
    """Return what a terminal of `columns` shows after `work`."""
    terminal, inside = pty.openpty()
    shown = bytearray()
    reading = threading.Thread(target=_read_all, args=(terminal, shown))
    reading.start()
    try:
        size = {"COLUMNS": str(columns), "LINES": "40"}
        with _standing_in(inside, dict(variables) | size), suppress(SystemExit):
            work()
    finally:
        os.close(inside)
        reading.join()
        os.close(terminal)
    return VirtualScreen(columns).feed(shown.decode()).text


def _read_all(terminal: int, shown: bytearray) -> None:
    while True:
        try:
            data = os.read(terminal, 65_536)
        except OSError:  # the other side is closed
            return
        if not data:
            return
        shown += data


@contextmanager
def _standing_in(inside: int, variables: Mapping[str, str]) -> Iterator[None]:
    """Let the terminal be the standard streams, and set variables."""
    before, streams = dict(os.environ), (sys.stdin, sys.stdout, sys.stderr)
    os.environ.update(variables)
    opened = [os.fdopen(os.dup(inside), mode, encoding="utf-8") for mode in ("r", "w", "w")]
    sys.stdin, sys.stdout, sys.stderr = opened
    try:
        yield
    finally:
        sys.stdin, sys.stdout, sys.stderr = streams
        for one in opened:
            one.close()
        os.environ.clear()
        os.environ.update(before)
