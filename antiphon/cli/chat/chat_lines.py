"""A chat whose input is no terminal: one line, or one \"\"\" block, after the other."""

import asyncio
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rich.text import Text

from antiphon.cli.chat import chat_commands
from antiphon.cli.chat.chat_commands import Leave
from antiphon.cli.chat.chat_session import ChatSession, Turn, raise_if_refused
from antiphon.cli.commands import say_awaited
from antiphon.cli.common import EXIT_FAILED, run_turn, turn_record
from antiphon.cli.terminal import AnswerScreen, is_open
from replica.errors import AntiphonError
from replica.ids import EntryId
from replica.io import answers


async def talk(chat: ChatSession) -> int:
    """Read and run lines until the input ends; return the exit code, 1 if a line failed."""
    out, code = chat.session.out, 0
    while (line := await _read_block()) is not None:
        try:
            await chat.look_if_deleted()
            if chat_commands.is_command(line):
                turn = await chat_commands.run(chat, line)
            else:
                turn = await chat.turn(line)
            if turn is not None:
                await _Answer(chat).run(turn)
        except Leave:
            return code
        except _Left:
            out.note(Text("left; the answer, if any, goes on into the log", "dim"))
            return 130
        except AntiphonError as error:
            out.fail(error)
            code = EXIT_FAILED
    return code


class _Left(Exception):  # it is no error
    """Ctrl-C was pressed again."""


class _Answer:
    """One answer: the first Ctrl-C cancels it, the second leaves."""

    def __init__(self, chat: ChatSession) -> None:
        self._chat = chat
        self._request: EntryId | None = None
        self._cancelling: asyncio.Task[None] | None = None
        self._left = asyncio.Event()

    async def run(self, turn: Turn) -> None:
        chat = self._chat
        say_awaited(chat.session, chat.replica, chat.held, turn.place)
        with self._interrupts():
            watching = asyncio.create_task(self._watch(turn))
            leaving = asyncio.create_task(self._left.wait())
            await asyncio.wait((watching, leaving), return_when=asyncio.FIRST_COMPLETED)
            leaving.cancel()
            if not watching.done():
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)
                raise _Left
            watching.result()

    async def _watch(self, turn: Turn) -> None:
        chat = self._chat
        screen = AnswerScreen(chat.session.out)
        events = run_turn(
            chat.session,
            chat.replica,
            chat.held,
            turn.text,
            turn.place,
            await chat.options(turn),
            choices=chat.choices(),
        )
        try:
            async for event in events:
                if isinstance(event, answers.Asked):
                    self._request = event.request
                    chat.follow(event)
                    await self._say_if_offline()
                screen.show(event)
                if isinstance(event, answers.Finished):
                    if self._cancelling is not None:
                        await self._cancelling
                    raise_if_refused(event.generation)
                    if chat.session.out.as_json:
                        chat.session.out.emit(turn_record(chat.held, None, event))
                    screen.cost(event, chat.continue_step(event.id))
        finally:
            screen.end()

    @contextmanager
    def _interrupts(self) -> Iterator[None]:
        loop, before = asyncio.get_running_loop(), signal.getsignal(signal.SIGINT)
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            signal.signal(signal.SIGINT, before)

    def _interrupt(self) -> None:
        if self._request is None or self._cancelling is not None:
            self._left.set()
            return
        self._cancelling = asyncio.create_task(self._cancel(self._request))

    async def _cancel(self, request: EntryId) -> None:
        """Cancel the request, or say why that fails: the answer is still shown then."""
        try:
            await self._chat.cancel(request)
        except AntiphonError as error:
            self._chat.session.out.fail(error)

    async def _say_if_offline(self) -> None:
        chat = self._chat
        if not chat.replica.hub.is_linked:
            await chat.session.say_offline(chat.replica, chat.held)
            chat.session.out.note(Text("waiting for the hub; Ctrl-C twice leaves", style="dim"))


async def _read_block() -> str | None:
    """Return the next line, or the next lines between triple quotes; None at the end."""
    block = await _read_line()
    while block is not None and is_open(block):
        line = await _read_line()
        if line is None:
            break
        block += "\n" + line
    return block


async def _read_line() -> str | None:
    """Read a line in a thread of its own, which does not hold up the end of the process."""
    loop = asyncio.get_running_loop()
    read: asyncio.Future[str] = loop.create_future()

    def deliver(line: str) -> None:
        if not read.done():
            read.set_result(line)

    def work() -> None:
        try:
            line = sys.stdin.readline()
        except OSError:  # the terminal is gone
            line = ""
        loop.call_soon_threadsafe(deliver, line)

    threading.Thread(target=work, daemon=True).start()
    line = await read
    return line.rstrip("\n") if line else None
