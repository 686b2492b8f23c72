"""The display of an answer: streamed text, a status line below it, then the cost.

On a terminal, text is wrapped at words here, so that the column of the cursor is
known and the status line can be drawn below the text and erased. Otherwise text
goes to stdout unchanged, and the cost to stderr.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.cells import cell_len
from rich.text import Text

from antiphon.cli.views import Output, Rate, bar, brief, end_lines, harmless, wrapped
from replica.conversation import is_shown
from replica.errors import AntiphonError
from replica.io import (
    Asked,
    Delta,
    Discarded,
    Finished,
    LinkBack,
    LinkLost,
    NotStored,
    NotTaken,
    Prefilling,
    TurnEvent,
)

CLEAR_BELOW = "\x1b[J"


class WrappedText:
    """Wraps streamed text at words on a terminal."""

    def __init__(self, width: int) -> None:
        """Wrap before `width` cells, fewer than the terminal has, so that it never wraps."""
        self.width = width
        self._word = ""
        self.column = 0

    def resize(self, width: int) -> str:
        """Wrap at another width; return a line break if the line does not fit it."""
        is_over = self.column >= self.width and not self._word  # a space was left out there
        self.width = width
        if self.column <= width and not is_over:
            return ""
        self.start_line()
        return "\n"

    def start_line(self) -> None:
        """Note that the cursor is at the beginning of an empty line."""
        self.column, self._word = 0, ""

    def feed(self, text: str) -> str:
        """Return `text` with line breaks and without control characters, to be written."""
        return "".join(self._put(" " if char == "\t" else char) for char in text)

    def _put(self, char: str) -> str:
        if char == "\n":
            self.column, self._word = 0, ""
            return char
        if not is_shown(char):
            return ""
        line_break = ""
        if self.column + cell_len(char) > self.width:
            if char == " ":
                self._word = ""  # replaced by the line break before the next word
                return ""
            line_break = self._break_line()
        self.column += cell_len(char)
        self._word = "" if char == " " else self._word + char
        return line_break + char

    def _break_line(self) -> str:
        cells = cell_len(self._word)
        if not 0 < cells < self.column:
            self.column, self._word = 0, ""
            return "\n"
        # The word has begun on this line: erase it and write it on the next.
        self.column = cells
        return f"\x1b[{cells}D\x1b[K\n{self._word}"


def not_taken_words(error: AntiphonError) -> str:
    """Say that the hub takes nothing for now."""
    return f"the hub does not take it yet: {brief(error)}; it is kept here and sent again"


def not_stored_words(error: AntiphonError) -> str:
    """Say that the store here takes nothing for now."""
    return f"what arrives is not stored here: {brief(error)}; it is fetched again"


class AnswerScreen:
    """Shows one answer on the two streams."""

    def __init__(self, out: Output) -> None:
        """Draw a status line only if both streams are terminals."""
        self._out = out
        self._live = out.is_terminal and out.can_draw
        self._text = WrappedText(max(20, out.data.width - 1))
        self._status = ""
        self._rate = Rate()
        self.wrote = False

    def show(self, event: TurnEvent) -> None:
        """Show one event of a turn."""
        match event:
            case Asked():
                self._set_status(Text("waiting for the host", style="dim"))
            case Prefilling(progress):
                self._set_status(bar(progress, is_ascii=self._out.is_ascii))
            case Delta(text, tokens):
                self._rate.feed(time.monotonic(), tokens)
                self._write(text)
                self._set_status(Text(self._rate.words(), style="dim"))
            case Discarded():
                self._write("\n")
                self._out.note(
                    Text("the host started the answer again; ignore the text above", "yellow")
                )
                self._text.start_line()
            case LinkLost():
                self.delay("the hub is away; waiting for it")
            case LinkBack():
                self._say("the hub is back", "dim")
            case NotTaken(error):
                self.delay(not_taken_words(error))
            case NotStored(error):
                self.delay(not_stored_words(error))
            case Finished():
                self.end()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Let a line be printed; on a terminal the answer goes on below it."""
        if self._live:
            self._erase_status()
            if self._text.column:
                self._write("\n")
                self._text.start_line()
        yield

    def delay(self, words: str) -> None:
        """Say what delays the answer."""
        self._say(words, "yellow")

    def _say(self, words: str, style: str) -> None:
        """Show words on the status line, without one as a note."""
        if self._live:
            self._set_status(Text(words, style=style))
        else:
            self._out.note(words)

    def end(self) -> None:
        """Erase the status line and end the line of text."""
        self._set_status(Text(""))
        if self.wrote:
            sys.stdout.write("\n")
            sys.stdout.flush()
            self.wrote = False

    def cost(self, event: Finished, next_step: str) -> None:
        """Print how an answer ended, and its size, on stderr; for the step see `end_lines`."""
        lines = end_lines(event.generation, next_step, is_verbose=self._out.is_verbose)
        width = self._out.people.width - 1 if self._live else 0
        for line in lines:
            for part in wrapped(line, width, " · "):
                self._out.note(Text(part, style="dim"))

    def _write(self, text: str) -> None:
        if self._out.as_json:
            return
        self._erase_status()
        if self._live:
            text = self._text.resize(max(20, self._out.data.width - 1)) + self._text.feed(text)
        elif self._out.data.is_terminal:
            text = harmless(text)
        sys.stdout.write(text)
        sys.stdout.flush()
        self.wrote = self.wrote or bool(text)

    def _set_status(self, status: Text) -> None:
        if not self._live:
            return
        self._erase_status()
        if not status:
            return
        status.truncate(max(1, self._out.people.width - 1), overflow="ellipsis")
        with self._out.people.capture() as capture:
            self._out.people.print(status, end="")
        # One line down (the terminal scrolls if need be), the status, and back up.
        back = f"\x1b[A\r\x1b[{self._text.column}C" if self._text.column else "\x1b[A\r"
        sys.stdout.write("\n" + capture.get() + back)
        sys.stdout.flush()
        self._status = capture.get()

    def _erase_status(self) -> None:
        if self._status:
            sys.stdout.write(CLEAR_BELOW)
            self._status = ""
