"""What a chat shows at a terminal: the branch as a transcript, and the panel below it.

The branch is shown in its order, by whoever its words were written. What waits for the
answer under way stands in the panel, with the answer's state and the line being typed,
which no output disturbs.
"""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.text import Text

from antiphon.cli.chat import chat_panel
from antiphon.cli.chat.chat_panel import PROMPT
from antiphon.cli.chat.chat_session import ChatSession
from antiphon.cli.terminal import Canvas, LineEditor, not_stored_words, not_taken_words
from antiphon.cli.views import (
    ANOTHER,
    CANCELLED,
    SIDE_LEAF,
    TALK,
    BranchView,
    Rate,
    answered_by,
    bar,
    cut,
    end_lines,
    harmless,
    is_cancelled,
    is_end_of_none,
    is_never_answered,
    is_side_leaf,
    is_undone,
    line_of,
    question_of,
    stands_below,
    word_of,
    words_of,
    wrapped,
    written_by,
)
from replica.errors import AntiphonError
from replica.ids import EntryId
from replica.io import answers
from replica.log import (
    Conflict,
    Entry,
    FinishReason,
    Generation,
    Message,
    Request,
    Speaker,
    ToolCall,
)

WHOLE = "the whole answer comes now, in place of what is shown of it above"
LEFT = "this answer goes on in another branch"


class ChatScreen:
    """The terminal of one chat."""

    def __init__(self, chat: ChatSession, editor: LineEditor) -> None:
        """Show the branch of `chat`, and the line of `editor` below it."""
        self._chat = chat
        self._out = chat.session.out
        self._editor = editor
        self._canvas = Canvas(self._width)
        self._rate = Rate()
        self._progress = Text("")
        self.above: EntryId | None = None
        """What was printed last: a message, or of an answer its request; None if neither."""
        self._answering: EntryId | None = None
        """The request of the answer under way."""
        self._begun: dict[EntryId, str] = {}
        """The text that is on the screen of each answer that has not ended there."""

    @property
    def _width(self) -> int:
        return shutil.get_terminal_size().columns

    @property
    def is_within_line(self) -> bool:
        """Say whether the text of an answer ends within a line, which more text may go on."""
        return self._canvas.column > 0

    # --- the transcript ---------------------------------------------------------------

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Erase the panel, which `draw` shows again, and let lines be printed from column 0 on."""
        _write(self._canvas.compose("\n" if self._canvas.column else "", None))
        yield
        sys.stdout.flush()

    @contextmanager
    def between(self) -> Iterator[None]:
        """Let lines be printed that belong to no question: the next answer names its own again."""
        with self.aside():
            yield
        self.above = None

    def note(self, words: str, style: str = "dim") -> None:
        """Print a line that belongs to no question."""
        self._note(words, style)
        self.above = None

    def _note(self, words: str, style: str = "dim") -> None:
        with self.aside():
            for line in wrapped(words, self._width - 1, " · "):
                self._out.note(Text(line, style=style))

    def ring(self, words: str) -> None:
        """Ring, and print a line about what was typed."""
        _write("\a")
        self.note(words, "yellow")

    def fail(self, error: AntiphonError) -> None:
        """Print an error."""
        with self.between():
            self._out.fail(error)

    async def print_entry(self, entry: Entry, *, is_new: bool) -> None:
        """Print what an entry says, if it says anything; a new answer with its size."""
        held = self._chat.held
        body = held.log.body(entry.id)
        match body:
            case Message(speaker, parts):
                self._print_words(entry, speaker, words_of(parts))
                self.above = entry.id
                if not is_new and is_cancelled(held, entry) and not is_undone(held, entry):
                    self._note(CANCELLED)
            case Generation():
                if not is_end_of_none(held, entry):
                    await self._print_answer(entry, body, is_new=is_new)
                    self.above = answered_by(held, entry)
            case None if entry.header.kind in TALK:
                self._note(f"({self._chat.names.of(entry.header.author)}: a body that is not here)")
            case Request() if entry.header.conflict == Conflict.QUEUE:
                if is_never_answered(held, entry.id) and not is_undone(held, entry):
                    self._say_whose(entry.id)
                    self._note(CANCELLED)
            case _:
                pass

    def _print_words(self, entry: Entry, speaker: int, words: str) -> None:
        who = self._chat.names.of(entry.header.author)
        is_own = who == "you" and speaker == Speaker.USER
        if speaker != Speaker.USER:
            writer = written_by(speaker, entry, self._chat.names)
            who = " ".join(filter(None, (word_of(Speaker, speaker), writer)))
        head = PROMPT if is_own else f"{who}: "
        style = "cyan" if is_own else "yellow" if speaker == Speaker.USER else "magenta"
        first, *rest = wrapped(words, self._width - 1 - len(head))
        with self.aside():
            self._out.show(Text.assemble((head, style), first))
            for line in rest:
                self._out.show("  " + line)

    async def _print_answer(self, entry: Entry, generation: Generation, *, is_new: bool) -> None:
        words, asked = words_of(generation.parts), answered_by(self._chat.held, entry)
        begun = self._begun.pop(asked, "") if asked is not None else ""
        is_rest = bool(begun) and self.above == asked and words.startswith(begun)
        if asked is not None and (is_new or self.above is None):
            self._say_whose(asked)
        if is_rest:
            _write(self._canvas.compose(harmless(words[len(begun) :]), None))
            words = ""
        elif begun:
            self._note(WHOLE, "yellow")
        with self.aside():
            for line in wrapped(words, self._width - 1) if words else []:
                self._out.show(line)
        if is_side_leaf(self._chat.held, entry):
            self._note(SIDE_LEAF)
        if is_new or generation.finish_reason != FinishReason.STOP:
            await self._print_end(entry.id, generation)

    # --- the answer under way -----------------------------------------------------------

    def begin_answer(self, request: EntryId) -> None:
        """Forget the state of the answer before; what comes now is that of a request."""
        self._rate, self._progress = Rate(), Text("")
        self._answering = request
        self._begun.pop(request, None)

    def leave_answer(self, request: EntryId) -> None:
        """Say what becomes of an answer that is awaited no more, unless its end was shown.

        It goes on elsewhere, as behind a fork, or was cancelled before its turn.
        """
        held, order = self._chat.held, self._chat.held.order
        has_ended = order.generation_of(request) is not None or order.is_cancelled(request)
        if self._begun.get(request) and not has_ended:
            self.note(LEFT)
        asked = held.log.entries[request]
        if is_never_answered(held, request) and not is_undone(held, asked):
            self._say_whose(request)
            self._note(CANCELLED)

    def _say_whose(self, request: EntryId) -> None:
        """Name a question again whose answer comes, unless it is what was printed last."""
        held = self._chat.held
        if not stands_below(held, request, self.above):
            question = question_of(held, request)
            asked = question or held.log.entries[request]
            who = self._chat.names.of(asked.header.author)
            line = f"{who}: {line_of(held, question) or ANOTHER}"
            with self.aside():
                self._out.show(Text(cut(line, self._width - 1), style="dim"))
        self.above = request

    async def show(self, event: answers.TurnEvent, now_s: float) -> None:
        """Show one event of the answer under way."""
        request = self._answering
        assert request is not None, "an answer is under way"
        match event:
            case answers.Prefilling(progress):
                self._progress = bar(progress, is_ascii=self._out.is_ascii)
            case answers.Delta(text, tokens):
                self._rate.feed(now_s, tokens)
                self._say_whose(request)
                self._begun[request] = self._begun.get(request, "") + text
                _write(self._canvas.compose(harmless(text), None))
            case answers.Discarded():
                self._begun.pop(request, None)
                self._note("the host began the answer again; ignore the text above", "yellow")
            case answers.NotTaken(error):
                self._note(not_taken_words(error), "yellow")
            case answers.NotStored(error):
                self._note(not_stored_words(error), "yellow")
            case answers.Finished(answer, generation):
                self._begun.pop(request, None)
                self._say_whose(request)
                await self._end_answer(answer, generation)
            case _:
                pass

    async def _end_answer(self, answer: EntryId, generation: Generation) -> None:
        with self.aside():
            for part in generation.parts:
                if isinstance(part, ToolCall):
                    self._out.show(words_of((part,)))
        if generation.finish_reason != FinishReason.REFUSED:
            await self._print_end(answer, generation)

    async def _print_end(self, answer: EntryId, generation: Generation) -> None:
        is_cut = generation.finish_reason == FinishReason.LENGTH
        step = self._chat.continue_step(answer) if is_cut else ""
        for line in end_lines(generation, step, is_verbose=self._out.is_verbose):
            self._note(line)

    # --- the panel ----------------------------------------------------------------------

    def resize(self) -> None:
        """Draw for another width from now on."""
        _write(self._canvas.resize(self._width))

    def draw(self, view: BranchView, state: str) -> None:
        """Draw the panel; `state` says what delays the answer, if anything does."""
        progress = Text(self._rate.words()) if self._rate.tokens else self._progress
        panel = chat_panel.panel_of(self._chat, self._editor, view, state, progress)
        _write(self._canvas.compose("", panel))


def _write(text: str) -> None:
    if text:
        sys.stdout.write(text)
        sys.stdout.flush()
