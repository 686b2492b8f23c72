"""The display of an answer: streamed text, a status line below it, then the cost.

On a terminal, text is wrapped at words here, so that the column of the cursor is
known and the status line can be drawn below the text and erased. Otherwise text
goes to stdout unchanged, and the cost to stderr.
"""

import os
import sys
import time

from rich.cells import cell_len
from rich.text import Text

from antiphon.cli.output import Output, harmless
from antiphon.cli.rows import finish_name, usage_line, wrapped
from replica.conversation import Progress
from replica.io import Asked, Delta, Discarded, Finished, LinkBack, LinkLost, Prefilling, TurnEvent
from replica.log import FinishReason

BAR_CELLS = 32
RATE_AFTER_S = 0.5
"""Shortest time over which a rate is shown."""
_CLEAR_BELOW = "\x1b[J"


class WrappedText:
    """Wraps streamed text at words on a terminal."""

    def __init__(self, width: int) -> None:
        """Wrap before `width` cells, fewer than the terminal has, so that it never wraps."""
        self._width = width
        self._word = ""
        self.column = 0

    def feed(self, text: str) -> str:
        """Return `text` with line breaks and without control characters, to be written."""
        return "".join(self._put(" " if char == "\t" else char) for char in text)

    def _put(self, char: str) -> str:
        if char == "\n":
            self.column, self._word = 0, ""
            return char
        if not char.isprintable():
            return ""
        line_break = ""
        if self.column + cell_len(char) > self._width:
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


class AnswerScreen:
    """Shows one answer on the two streams."""

    def __init__(self, out: Output) -> None:
        """Draw a status line only if both streams are terminals."""
        self._out = out
        self._live = out.is_terminal and os.environ.get("TERM") != "dumb"
        self._text = WrappedText(max(20, out.data.width - 1))
        self._status = ""
        self._first: tuple[float, int] | None = None
        self.tokens = 0
        self.wrote = False

    def show(self, event: TurnEvent) -> None:
        """Show one event of a turn."""
        match event:
            case Asked():
                self._set_status(Text("waiting for the host", style="dim"))
            case Prefilling(progress):
                self._set_status(self._bar(progress))
            case Delta(text, tokens):
                self.tokens = tokens
                self._write(text)
                self._set_status(Text(self._counter(), style="dim"))
            case Discarded():
                self._write("\n")
                self._out.note(
                    Text("the host started the answer again; ignore the text above", "yellow")
                )
                self._text.column = 0
            case LinkLost():
                self._set_status(Text("the hub is away; waiting for it", style="yellow"))
            case LinkBack():
                self._set_status(Text("the hub is back", style="dim"))
            case Finished():
                self.end()

    def _counter(self) -> str:
        """Return the tokens so far and their rate since the first ones."""
        now = time.monotonic()
        if self._first is None:
            self._first = (now, self.tokens)
        began, tokens = self._first
        if now - began < RATE_AFTER_S:
            return f"{self.tokens} tokens"
        return f"{self.tokens} tokens · {(self.tokens - tokens) / (now - began):.1f} tok/s"

    def end(self) -> None:
        """Erase the status line and end the line of text."""
        self._set_status(Text(""))
        if self.wrote:
            sys.stdout.write("\n")
            sys.stdout.flush()
            self.wrote = False

    def cost(self, event: Finished) -> None:
        """Print the usage of an answer on stderr, with the finish reason unless it is STOP."""
        generation = event.generation
        line = usage_line(generation.usage)
        if generation.finish_reason != FinishReason.STOP:
            line = f"{finish_name(generation.finish_reason)} · {line}"
        width = self._out.people.width - 1 if self._live else 0
        for part in wrapped(line, width, " · "):
            self._out.note(Text(part, style="dim"))

    def _write(self, text: str) -> None:
        if self._out.as_json:
            return
        self._erase_status()
        if self._live:
            text = self._text.feed(text)
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
            sys.stdout.write(_CLEAR_BELOW)
            self._status = ""

    def _bar(self, progress: Progress) -> Text:
        """Draw the prompt as a bar: cached, restored, computed and remaining tokens."""
        full, shade, blank = ("#", "=", "-") if self._out.is_ascii else ("█", "▓", "░")
        total = max(1, progress.prompt_tokens)
        cached = progress.cached_tokens * BAR_CELLS // total
        restored = progress.restored_tokens * BAR_CELLS // total
        done = progress.cached_tokens + progress.restored_tokens + progress.prefilled_tokens
        computed = max(0, min(done, total) * BAR_CELLS // total - cached - restored)
        left = BAR_CELLS - cached - restored - computed
        return Text.assemble(
            ("prefill ", "dim"),
            (full * cached, "green"),
            (shade * restored, "cyan"),
            (full * computed, "yellow"),
            (blank * left, "dim"),
            (f" {min(done, total)}/{total}", ""),
            ("  cached ", "dim"),
            (str(progress.cached_tokens), "green"),
            ("  restored ", "dim"),
            (str(progress.restored_tokens), "cyan"),
            ("  computed ", "dim"),
            (str(progress.prefilled_tokens), "yellow"),
        )
