"""A chat at a terminal: keys and news in, the screen out.

One goes on writing while an answer comes, while others write and while the hub is away.
The first Ctrl-C cancels the answer, a second one leaves.
"""

import asyncio
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from antiphon.cli.chat import chat_commands
from antiphon.cli.chat.chat_commands import Leave
from antiphon.cli.chat.chat_screen import ChatScreen
from antiphon.cli.chat.chat_session import ChatSession, raise_if_refused
from antiphon.cli.chat.other_branches import OtherBranches
from antiphon.cli.common import HostPresence
from antiphon.cli.terminal import (
    TEXT_CHARACTERS_MAX,
    Cut,
    Ended,
    Interrupted,
    Keyboard,
    LineEditor,
    Submitted,
    Suspended,
    Typed,
)
from antiphon.cli.views import (
    ANOTHER,
    NO_BRANCH,
    PREVIEW_CELLS,
    TALK,
    Printed,
    counted,
    cut,
    entries_at,
    line_of,
    question_of,
    taken_back_words,
    view_of,
)
from replica.conversation import Conversation, Place
from replica.errors import AntiphonError
from replica.ids import EntryId
from replica.io import answers
from replica.link import EntriesAdmitted, Event, Forgotten
from replica.log import Kind
from replica.refusals import ConversationUnknown

TICK_S = 0.25
"""Interval of looks at the clock while an answer is awaited."""
CANCEL_WAIT_S = 3.0
"""Time for the end of a cancelled answer to arrive; then the chat goes on without it."""
ENDED = "nothing that you write here from now on is taken"
PUT_BACK = "your text is back in the line · Ctrl-U clears it · / begins a command"
EXIT_INTERRUPTED, EXIT_TERMINATED = 130, 143
_NAMING = frozenset({Kind.DOCUMENT, Kind.MEMBER})
"""Kinds of entries with which a key gets a name: a newcomer has it from its invitation."""


class TerminalChat:
    """The loop of one chat."""

    def __init__(self, chat: ChatSession, keyboard: Keyboard) -> None:
        """Run `chat`, which is open and synced, with the keys of `keyboard`."""
        self._chat = chat
        self._keyboard = keyboard
        self._editor = LineEditor()
        self._screen = ChatScreen(chat, self._editor)
        self._presence = HostPresence(chat.replica, chat.held.id)
        self._wake = asyncio.Event()
        self._typed: list[Typed] = []
        self._code: int | None = None
        self._view = NO_BRANCH
        self._is_stale = True
        self._printed = Printed(chat.held)
        self._answer: answers.AnswerWatch | None = None
        self._answered: EntryId | None = None
        self._cancelled: dict[EntryId, float] = {}
        """Requests that were cancelled, and when that was seen: their answers may yet end."""
        self._given_up: set[EntryId] = set()
        self._others = OtherBranches(chat, self._screen)
        self._are_names_stale = False
        self._may_be_deleted = False
        """Whether the conversation has left memory, which a deletion does among others."""
        self._has_ended = chat.refusal is not None
        """Whether it was said that nothing is taken any more."""

    async def talk(self) -> int:
        """Run until the user leaves; return the exit code."""

        @contextmanager
        def beside() -> Iterator[None]:
            with self._screen.between():
                yield
            self._wake.set()

        await self._look()
        if self._chat.refusal is not None:  # which was said
            self._given_up.update(self._view.waiting)
            await self._look()
        shown = [entry for entry in self._view.shown if entry.header.kind in TALK]
        for entry in self._view.shown:
            self._printed.add(entry.id)
        earlier = len(shown) - self._chat.recent_max
        if earlier > 0:
            words = counted(earlier, "earlier message", "earlier messages")
            self._screen.note(f"{words} · /log shows all")
        for entry in shown[-self._chat.recent_max :]:
            await self._screen.print_entry(entry, is_new=False)
        stop = self._chat.replica.listen(self._receive)
        self._chat.session.beside = beside
        try:
            with self._signals():
                self._keyboard.listen(self._read)
                while self._code is None:
                    await self._refresh()
                    await self._wait()
                    typed, self._typed = self._typed, []
                    for key in typed:
                        await self._handle(key)
                self._say_leaving()
        finally:
            self._chat.session.beside = nullcontext
            stop()
            self._stop_watch()
            await self._presence.stop()
        return self._code

    # --- what wakes it up ---------------------------------------------------------------

    def _receive(self, event: Event) -> None:
        if isinstance(event, EntriesAdmitted):
            if event.conversation != self._chat.held.id:
                return
            self._is_stale = True
            self._others.receive(event.entries)
            self._are_names_stale |= any(e.header.kind in _NAMING for e in event.entries)
        self._may_be_deleted |= event == Forgotten(self._chat.held.id)
        self._wake.set()

    def _read(self, data: bytes) -> None:
        self._typed += self._editor.feed(data) if data else [Ended()]
        self._wake.set()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        handlers = {
            signal.SIGWINCH: self._resize, signal.SIGTERM: self._terminate,
            signal.SIGHUP: self._terminate,
        }  # fmt: skip
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        try:
            yield
        finally:
            for number in handlers:
                loop.remove_signal_handler(number)

    def _resize(self) -> None:
        self._screen.resize()
        self._wake.set()

    def _terminate(self) -> None:
        self._code = EXIT_TERMINATED
        self._wake.set()

    async def _wait(self) -> None:
        timeout_s = TICK_S if self._view.running is not None else None
        try:
            async with asyncio.timeout(timeout_s):
                await self._wake.wait()
        except TimeoutError:
            self._is_stale = self._is_stale or bool(self._cancelled)
        self._wake.clear()

    # --- keys ---------------------------------------------------------------------------

    async def _handle(self, key: Typed) -> None:
        self._is_stale = True
        match key:
            case Submitted(text):
                await self._run(text)
            case Interrupted():
                await self._look()  # what was sent right before it can be cancelled
                self._is_stale = True
                await self._interrupt()
            case Suspended():
                with self._screen.aside():
                    self._keyboard.suspend()
                self._resize()
            case Ended():
                self._code = self._code or 0
            case Cut():
                self._screen.ring(f"cut: a text has at most {TEXT_CHARACTERS_MAX:,} characters")

    async def _run(self, text: str) -> None:
        try:
            if chat_commands.is_command(text):
                with self._screen.aside():
                    turn = await chat_commands.run(self._chat, text)
                if turn is None:  # what it printed stands above the answer that goes on
                    self._screen.above = None
            else:
                turn = await self._chat.turn(text)
            if turn is not None:
                await self._chat.write(turn)
        except Leave:
            self._code = 0
        except AntiphonError as error:
            self._screen.fail(error)
            if not chat_commands.is_command(text):
                is_back = self._editor.put_back(text)
                self._screen.note(PUT_BACK if is_back else f"not sent: {text}")

    async def _interrupt(self) -> None:
        """Cancel the user's answer; leave where there is none, or it is cancelled already.

        What the user asked behind it stays: the line of the answer says that the chat is left.
        """
        chat = self._chat
        entries = chat.held.log.entries
        mine = [i for i in self._view.waiting if entries[i].header.author == chat.replica.public]
        open_ones = [i for i in mine if i not in self._cancelled]
        is_ending = self._view.running in self._cancelled and self._view.running in mine
        if not open_ones or is_ending:
            self._code = EXIT_INTERRUPTED if mine else 0
            return
        try:
            await chat.cancel(open_ones[0])
        except AntiphonError as error:
            self._screen.fail(error)
        else:
            if open_ones[0] != self._view.running:
                words = line_of(chat.held, question_of(chat.held, open_ones[0])) or ANOTHER
                self._screen.note(f"cancelled: {cut(words, PREVIEW_CELLS)}")
        self._cancelled[open_ones[0]] = time.monotonic()

    def _say_leaving(self) -> None:
        with self._screen.aside():
            pass  # the shell writes where the panel was
        if self._view.waiting:
            self._screen.note("left; the answer, if any, goes on into the log")
        for text in self._editor.unsent:
            self._screen.note(f"not sent: {text}")

    async def _say_ending(self) -> bool:
        """Say once that nothing is taken from now on, if that is so; return whether it was said.

        What waits for an answer until then was written before, and stands above.
        """
        if not self._has_ended and (ending := self._chat.ending()) is not None:
            self._has_ended = True
            self._given_up.update(self._view.waiting)
            await self._look()
            await self._print_new()
            self._screen.fail(ending)
            self._screen.note(ENDED, "yellow")
        return self._has_ended

    # --- news ---------------------------------------------------------------------------

    async def _refresh(self) -> None:
        """Show all news, then draw the panel."""
        if self._are_names_stale:
            self._are_names_stale = False
            await self._chat.read_names()
        if self._may_be_deleted:
            self._may_be_deleted = False
            await self._chat.look_if_deleted()
        while await self._show_news():
            pass
        await self._say_ending()
        await self._others.look()
        if self._answered is None or not self._screen.is_within_line:
            await self._others.announce()
        running = self._view.running
        delay = _delay(self._chat, self._presence, running, is_ending=running in self._cancelled)
        self._screen.draw(self._view, delay)

    async def _show_news(self) -> bool:
        """Show news of the answer under way, else new entries; say whether there may be more."""
        is_new = self._is_stale
        if is_new:
            await self._look()
        if self._answered is not None and self._answered != self._view.running:
            self._screen.leave_answer(self._answered)
        # The answer is followed after the look: an end that is in the view is then shown
        # with the text it belongs to, and not as an entry.
        if self._answered is not None and await self._follow(self._answered):
            self._stop_watch()
            return True
        if is_new:
            await self._print_new()
        running = self._view.running
        if running != self._answered:
            self._stop_watch()
        if running is None or self._answer is not None:
            return False
        self._screen.begin_answer(running)
        self._presence.note_news()
        self._answer = answers.AnswerWatch(self._chat.replica, self._chat.held.id, running)
        self._answered = running
        return True

    async def _print_new(self) -> None:
        """Print what is new in the view, and what was taken back of what was printed."""
        for entry in self._view.shown:
            if entry.id not in self._printed:
                self._printed.add(entry.id)
                await self._screen.print_entry(entry, is_new=True)
        for entry in self._printed.withdrawn():
            if entry.id not in self._chat.undone:
                self._screen.note(taken_back_words(self._chat.held, entry, self._chat.names))

    async def _look(self) -> None:
        self._is_stale = False
        chat, now = self._chat, time.monotonic()
        place = chat.place()
        if self._answered is not None and _is_cancelled(chat.held, self._answered, place):
            self._cancelled.setdefault(self._answered, now)
        ending = [i for i, since in self._cancelled.items() if now - since < CANCEL_WAIT_S]
        self._view = view_of(chat.held, place, ending=ending, given_up=self._given_up)
        for one in self._view.next:
            if one.message is not None:
                self._printed.announce(one.message.id)
        chat.pin(place)

    async def _follow(self, request: EntryId) -> bool:
        assert self._answer is not None, "a request is watched"
        try:
            events = await self._answer.news()
        except AntiphonError as error:
            if isinstance(error, ConversationUnknown):  # before its Forgotten, perhaps
                await self._chat.look_if_deleted()
            if not await self._say_ending():
                self._screen.fail(error)
            is_over = self._chat.hears_nothing_more
            self._given_up.update(self._view.waiting if is_over else (request,))
            self._is_stale = True
            return True
        for event in events:
            self._presence.note_news()
            await self._screen.show(event, time.monotonic())
            if isinstance(event, answers.Finished):
                self._finish(request, event)
                return True
        return False

    def _finish(self, request: EntryId, event: answers.Finished) -> None:
        self._printed.add(event.id)
        self._cancelled.pop(request, None)
        self._is_stale = True
        try:
            raise_if_refused(event.generation)
        except AntiphonError as error:
            self._screen.fail(error)

    def _stop_watch(self) -> None:
        if self._answer is not None:
            self._answer.stop()
        self._answer = self._answered = None


async def talk(chat: ChatSession, keyboard: Keyboard) -> int:
    """Run a chat at a terminal until the user leaves; return the exit code."""
    return await TerminalChat(chat, keyboard).talk()


def _is_cancelled(held: Conversation, request: EntryId, place: Place) -> bool:
    """Say whether a request of the branch that ends at a place was cancelled, by whomever."""
    is_closed = bool(held.order.closing_cancels(request))
    return is_closed and any(entry.id == request for entry in entries_at(held, place))


def _delay(
    chat: ChatSession, presence: HostPresence, running: EntryId | None, *, is_ending: bool
) -> str:
    """Return what delays the answer under way, empty if nothing is known to."""
    if running is None:
        return ""
    is_own = chat.held.log.entries[running].header.author == chat.replica.public
    if is_ending:
        return "cancelling; Ctrl-C again leaves" if is_own else "cancelling"
    if not chat.replica.hub.is_linked:
        return "waiting for the hub; go on writing"
    request = chat.held.order.request(running)
    words = presence.delay(request.host) if request is not None else ""
    return f"{words} · Ctrl-C cancels" if words and is_own else words
