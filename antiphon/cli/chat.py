"""`antiphon chat`: send messages, watch and cancel answers, undo, branch."""

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Annotated, Any, Self

import typer
from rich.text import Text

from antiphon.cli.background import Background
from antiphon.cli.cancel import cancel_awaited, say_closed
from antiphon.cli.command import ConversationArgument, command
from antiphon.cli.log import own_key, print_row
from antiphon.cli.rows import counted, cut, entries_at, row_of
from antiphon.cli.screen import AnswerScreen
from antiphon.cli.send import PREVIEW_CELLS, ConflictOption, parse_conflict, say_awaited
from antiphon.cli.session import Choices, Session, check_readable, find_entry
from antiphon.cli.turn import check_text, may_write, options_for, run_turn
from replica.conversation import Conversation, Place, place_at
from replica.errors import AntiphonError
from replica.ids import ConversationId, EntryId, short
from replica.io import Replica, turns
from replica.log import Conflict, Entry, Kind
from replica.refusals import ArgumentInvalid

HELP = """\
/undo           undo the last turn; the next message starts a branch there
/again          ask for another answer to the last message
/cancel         cancel the awaited answers on this branch; keep received text
/fork [ENTRY]   let the next message follow ENTRY, else the last answer
/log            show this branch
/status         show the state of the conversation at the hub
/help           show this help
/quit           leave, as does Ctrl-D; the conversation is kept
Ctrl-C          cancel the answer and keep received text; again: leave"""
_TALK = frozenset({Kind.MESSAGE, Kind.GENERATION, Kind.TOOLS})
_RECENT = 6


def register(app: typer.Typer) -> None:
    """Add the command."""

    @command(app, "chat", rich_help_panel="Talk")
    def chat(
        session: Session,
        conversation: ConversationArgument = None,
        *,
        conflict: ConflictOption = None,
        max_tokens: Annotated[
            int | None, typer.Option(metavar="N", min=1, help="Output tokens per answer.")
        ] = None,
    ) -> int:
        """Chat with the model in a terminal; /help lists the commands."""
        with Background() as background:
            chat_session = ChatSession(session, background, parse_conflict(conflict), max_tokens)
            with chat_session.opened(conversation):
                return chat_session.talk()


class Interrupts:
    """Ctrl-C during an answer: the first one cancels the answer, any other raises.

    A signal handler loses no event, unlike an exception in the middle of the output.
    """

    def __init__(self, cancel: Callable[[EntryId], "Future[Entry]"]) -> None:
        """Cancel with `cancel`, once `request` is known."""
        self.request: EntryId | None = None
        self._cancel = cancel
        self._cancelling: Future[Entry] | None = None
        self._before: Any = None

    def __enter__(self) -> Self:
        """Install the handler of Ctrl-C."""
        self._before = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *_error: object) -> None:
        """Restore the previous handler."""
        signal.signal(signal.SIGINT, self._before)

    def raise_failure(self) -> None:
        """Raise the error that the cancellation ended with, if any."""
        if self._cancelling is not None:
            self._cancelling.result()

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        if self.request is None or self._cancelling is not None:
            raise KeyboardInterrupt
        self._cancelling = self._cancel(self.request)


@dataclass(slots=True)
class ChatSession:
    """A chat in one conversation."""

    session: Session
    background: Background
    conflict: Conflict | None
    output_tokens_max: int | None
    replica: Replica = field(init=False)
    held: Conversation = field(init=False)
    _stack: AsyncExitStack = field(init=False, default_factory=AsyncExitStack)

    @contextlib.contextmanager
    def opened(self, prefix: str | None) -> Iterator[None]:
        """Open the replica, sync the conversation and show its recent messages."""
        try:
            self.background.run(self._open(prefix))
            yield
        finally:
            self.background.run(self._stack.aclose())

    async def _open(self, prefix: str | None) -> None:
        session = self.session
        self.replica = await self._stack.enter_async_context(session.replica())
        chosen = await session.choose(self.replica.store, prefix)
        await self.replica.load(chosen)
        online = await session.sync(self.replica, chosen)
        self.held = check_readable(await self.replica.load(chosen))
        await session.use(self.replica.store, chosen)
        await self._greet(chosen, online=online)

    async def _greet(self, chosen: ConversationId, *, online: bool) -> None:
        out = self.session.out
        entries = [e for e in entries_at(self.held, await self._place()) if e.header.kind in _TALK]
        out.note(
            Text(
                f"conversation {short(chosen)} · {counted(len(entries), 'message', 'messages')}"
                " · /help",
                style="dim",
            )
        )
        if self.held.is_blocked:
            self.session.say_damaged(self.held)
        elif not may_write(self.replica, self.held):
            out.note("you can read this conversation; to write, an owner must grant your key")
        elif not online:
            await self.session.say_offline(self.replica, self.held)
        if out.is_terminal:
            for entry in entries[-_RECENT:]:
                print_row(self.session, row_of(self.held, entry, own_key(self.session)))

    # --- the loop ---------------------------------------------------------------

    def talk(self) -> int:
        """Read and run lines until the user leaves; return the exit code."""
        _use_line_editing()
        while True:
            try:
                line = self._read_line()
            except EOFError:
                return 0
            except ArgumentInvalid as error:
                self.session.out.fail(error)
                continue
            except KeyboardInterrupt:
                self.session.out.note("")
                return 0
            try:
                if line.startswith("/"):
                    if not self._run_command(*line[1:].partition(" ")[::2]):
                        return 0
                elif line.strip():
                    self._turn(line)
            except KeyboardInterrupt:
                self.session.out.note(Text("left; the answer, if any, goes on into the log", "dim"))
                return 130
            except AntiphonError as error:
                self.session.out.fail(error)

    def _read_line(self) -> str:
        """Read the next line from a terminal or pipe. Raises EOFError, ArgumentInvalid."""
        if self.session.out.is_terminal:
            # \x01 … \x02 mark the colour as zero-width for readline.
            colored = "\x01\x1b[36m\x02> \x01\x1b[0m\x02"
            return check_text(input(colored if _has_color(self.session) else "> "))
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return check_text(line.rstrip("\n"))

    def _run_command(self, name: str, rest: str) -> bool:
        """Run a /command; return False to leave."""
        match name.strip():
            case "quit" | "exit" | "q":
                return False
            case "undo":
                self.background.run(self._undo())
            case "again":
                self._again()
            case "cancel":
                self.background.run(self._cancel_awaited())
            case "fork":
                self.background.run(self._fork(rest.strip()))
            case "log":
                place = self.background.run(self._place())
                for entry in entries_at(self.held, place):
                    if entry.header.kind in _TALK:
                        print_row(self.session, row_of(self.held, entry, own_key(self.session)))
            case "status":
                self.background.run(self._status())
            case "help" | "?":
                self.session.out.note(HELP)
            case _:
                self.session.out.note(f"there is no /{name}; /help lists the commands")
        return True

    def _turn(self, text: str | None, place: Place | None = None) -> None:
        place = place or self.background.run(self._place())
        choices = self.background.run(self._choices())
        place = place if self.conflict is None else replace(place, conflict=self.conflict)
        say_awaited(self.session, self.replica, self.held, place)
        changes = {"output_tokens_max": self.output_tokens_max}
        options = options_for(self.replica, self.held, choices, changes=changes)
        events = run_turn(self.session, self.replica, self.held, text, place, options)
        self._watch(self.background.iterate(events))

    def _watch(self, events: Iterator[turns.TurnEvent]) -> None:
        """Show an answer; the first Ctrl-C cancels it, the second leaves."""
        screen = AnswerScreen(self.session.out)
        try:
            with Interrupts(self._cancel) as interrupts:
                for event in events:
                    if isinstance(event, turns.Asked):
                        interrupts.request = event.request
                        self._say_if_offline()
                    screen.show(event)
                    if isinstance(event, turns.Finished):
                        interrupts.raise_failure()
                        turns.raise_if_refused(event.generation)
                        self._record(event)
                        screen.cost(event)
        finally:
            screen.end()

    def _cancel(self, request: EntryId) -> "Future[Entry]":
        return self.background.start(turns.cancel(self.replica, self.held.id, request))

    def _say_if_offline(self) -> None:
        if not self.replica.hub.is_linked:
            self.background.run(self.session.say_offline(self.replica, self.held))
            self.session.out.note(Text("waiting for the hub; Ctrl-C twice leaves", style="dim"))

    def _record(self, event: turns.Finished) -> None:
        if self.session.out.as_json:
            from antiphon.cli.turn import turn_record

            self.session.out.emit(turn_record(self.held, None, event))

    # --- /commands ----------------------------------------------------------------

    async def _choices(self) -> Choices:
        return await self.session.choices(self.replica.store, self.held.id)

    async def _place(self) -> Place:
        return (await self._choices()).place(self.held)

    async def _go_to(self, entry_id: EntryId) -> None:
        choices = await self._choices()
        choices.at, choices.branch = entry_id.hex(), ""
        await self.session.choose_next(self.replica.store, self.held.id, choices)

    async def _undo(self) -> None:
        last = await self._last(Kind.MESSAGE)
        parents = self.held.log.entries[last].header.parents
        await self._go_to(parents[0])
        words = row_of(self.held, self.held.log.entries[last], None).text
        self.session.out.note(f"undone: {cut(' '.join(words.split()), PREVIEW_CELLS)}")
        self.session.out.note(Text("it stays in the log, on its own branch", style="dim"))

    def _again(self) -> None:
        last = self.background.run(self._last(Kind.MESSAGE))
        self._turn(None, place_at(self.held, last))

    async def _cancel_awaited(self) -> None:
        closed = await cancel_awaited(self.replica, self.held, await self._place())
        say_closed(self.session, closed)

    async def _fork(self, prefix: str) -> None:
        at = find_entry(self.held, prefix) if prefix else await self._last(Kind.GENERATION)
        place = place_at(self.held, at)
        await self._go_to(at)
        row = row_of(self.held, self.held.log.entries[place.parents[0]], own_key(self.session))
        words = cut(" ".join(row.text.split()), PREVIEW_CELLS)
        self.session.out.note(f"the next message follows {row.id}  {row.who}: {words}")

    async def _last(self, kind: Kind) -> EntryId:
        """Return the last entry of a kind on this branch. Raises EntryUnknown."""
        from antiphon.cli.errors import EntryUnknown

        for entry in reversed(entries_at(self.held, await self._place())):
            if entry.header.kind == kind:
                return entry.id
        raise EntryUnknown(f"there is no {kind.name.lower()} on this branch yet")

    async def _status(self) -> None:
        waiting = self.replica.hub.unsynced(self.held.id)
        state = self.replica.hub.state(self.held.id).value
        branches = counted(len(self.held.order.tips()), "branch", "branches")
        self.session.out.note(
            f"{state} · {len(self.held.log)} entries · {waiting} not at the hub yet · {branches}"
        )


def _use_line_editing() -> None:
    # Importing it enables history and line editing for input().
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401


def _has_color(session: Session) -> bool:
    return session.out.data.color_system is not None and not session.out.data.no_color
