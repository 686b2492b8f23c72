"""`antiphon top`: the work of a model host, live."""

import asyncio
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.console import Group
from rich.live import Live
from rich.text import Text

from antiphon.cli.common import HostAddressOption, Session, command, host_to_ask
from antiphon.cli.terminal import Keyboard, raw_keyboard
from antiphon.cli.views import Timed, brief, error_record, lines, notice, record
from replica.errors import AntiphonError
from replica.io import HostCalls
from replica.log import public_key

INTERVAL_S = 1.0
INTERVAL_MIN_S = 0.1
QUIT_KEYS, SUSPEND_KEY = frozenset("qQ\x03\x04"), "\x1a"


def register(app: typer.Typer) -> None:
    """Add the command."""

    @command(app, "top", rich_help_panel="Run")
    async def top(
        session: Session,
        *,
        once: Annotated[bool, typer.Option("--once", help="Print one sample and exit.")] = False,
        interval: Annotated[
            float, typer.Option(metavar="SECONDS", min=INTERVAL_MIN_S, help="Time between samples.")
        ] = INTERVAL_S,
        host_address: HostAddressOption = None,
    ) -> None:
        """Show what a model host computes: queue, batch, times, memory, running requests.

        An operator of the host sees all running requests, others those of their
        conversations. On a terminal, it runs until q or Ctrl-C, and waits for a host that is
        away. With --json it writes an object for each sample, or for the error in its place.
        Otherwise, as without a terminal or with TERM=dumb, it prints one sample and exits.
        """
        poll = HostPoll(session, host_address)
        is_live = session.out.can_draw and not session.out.as_json
        try:
            if once or not (is_live or session.out.as_json):
                await poll.sample()
                _print(session, poll)
                return
            with _stop_signals() as stop:
                if is_live:
                    await _show_live(session, poll, interval, stop)
                else:
                    await _emit_all(session, poll, interval, stop)
        finally:
            await poll.close()


@dataclass(slots=True)
class HostPoll:
    """The latest samples of a host, which may go away and come back elsewhere."""

    session: Session
    wanted: str | None
    """The address given by the user; None to ask the hub."""
    now: Timed | None = None
    before: Timed | None = None
    error: AntiphonError | None = None
    """Why there is no newer sample."""
    _calls: HostCalls | None = None

    @property
    def address(self) -> str:
        """The address of the host asked last."""
        return self._calls.address if self._calls is not None else self.wanted or "?"

    async def sample(self) -> None:
        """Ask for a sample. Raises the error of the host, or of the hub that names it."""
        try:
            if self._calls is None:
                host = await host_to_ask(self.session, self.wanted)
                self._calls = HostCalls(host.address, self.session.key(), host.key)
            sample = await self._calls.stats()
        except AntiphonError as error:
            self.error, self.now, self.before = error, None, None
            await self.close()
            raise
        self.now, self.before = Timed(sample, time.monotonic()), self.now
        self.error = None

    async def close(self) -> None:
        """Close the channel; the next sample looks for the host again."""
        if self._calls is not None:
            await self._calls.close()
            self._calls = None


def _print(session: Session, poll: HostPoll) -> None:
    """Write the latest sample as data."""
    assert poll.now is not None, "a sample comes first"
    if session.out.as_json:
        session.out.emit(record(poll.now, poll.before, address=poll.address))
        return
    for line in _view(session, poll, sys.maxsize):
        session.out.show(line)


def _view(session: Session, poll: HostPoll, height: int) -> list[Text]:
    width = session.out.data.width
    if poll.error is not None:
        return notice(["the host is away; waiting for it", brief(poll.error)], width)
    if poll.now is None:
        return notice(["looking for the host"], width)
    own = public_key(session.key())
    return lines(poll.now, poll.before, own, address=poll.address, width=width, height=height)


async def _emit_all(
    session: Session, poll: HostPoll, interval_s: float, stop: asyncio.Event
) -> None:
    """Write a JSON object for each sample, or for the error in place of one."""
    while not stop.is_set():
        try:
            await poll.sample()
        except AntiphonError as error:
            session.out.emit({"error": error_record(error)})
        else:
            _print(session, poll)
        await _wait(stop, interval_s)


async def _show_live(
    session: Session, poll: HostPoll, interval_s: float, stop: asyncio.Event
) -> None:
    """Paint the screen with each sample, until a key or a signal ends it."""
    console = session.out.data

    def paint() -> Group:
        return Group(*_view(session, poll, console.height - 1))

    async def ask() -> None:
        while True:
            with suppress(AntiphonError):  # it is shown
                await poll.sample()
            live.update(paint(), refresh=True)
            await asyncio.sleep(interval_s)

    with (
        raw_keyboard() if sys.stdin.isatty() else nullcontext() as keyboard,
        Live(paint(), console=console, screen=True, auto_refresh=False) as live,
    ):
        if keyboard is not None:
            keyboard.listen(lambda data: _press(data, keyboard, live, stop))
        asking = asyncio.create_task(ask(), name="host samples")
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait((asking, stopping), return_when=asyncio.FIRST_COMPLETED)
        for task in (asking, stopping):
            task.cancel()
        await asyncio.gather(stopping, return_exceptions=True)
        if asking.done() and not asking.cancelled():
            asking.result()
        await asyncio.gather(asking, return_exceptions=True)


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    """Wait for a time, or until the command is to stop."""
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return


@contextmanager
def _stop_signals() -> Iterator[asyncio.Event]:
    """Return an event that SIGINT and SIGTERM set during the block."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, stop.set)
    try:
        yield stop
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def _press(data: bytes, keyboard: Keyboard, live: Live, stop: asyncio.Event) -> None:
    """Apply keys: Ctrl-Z suspends; one of QUIT_KEYS, or the end of input, stops."""
    typed = data.decode(errors="replace")
    if not typed or QUIT_KEYS & set(typed):
        stop.set()
    elif SUSPEND_KEY in typed:
        live.stop()  # the shell gets its screen and cursor back
        keyboard.suspend()
        live.start(refresh=True)
