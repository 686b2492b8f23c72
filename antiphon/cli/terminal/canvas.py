"""A transcript that grows above a panel: the bytes to write to a terminal.

Pure. The panel is a few rows below the text: the answer's state, who is next, the line
being typed. To write text, the panel is erased, the text goes on where it ended, and
the panel is drawn again below it. Nothing is wider than the terminal, so it never wraps.
"""

from dataclasses import dataclass

from antiphon.cli.terminal.screen import CLEAR_BELOW, WrappedText


@dataclass(frozen=True, slots=True)
class Panel:
    """The rows below the transcript, with their escape sequences, and the cursor among them."""

    rows: tuple[str, ...] = ()
    row: int = 0
    column: int = 0


class Canvas:
    """The state of the terminal below the point where the transcript began."""

    def __init__(self, width: int) -> None:
        """Begin at the first column of a terminal of `width` cells."""
        self._text = WrappedText(max(20, width - 1))
        self._panel: Panel | None = None

    @property
    def column(self) -> int:
        """The column where the text ends; 0 at the beginning of a line."""
        return self._text.column

    def resize(self, width: int) -> str:
        """Wrap at another width; return the bytes that erase the panel there.

        A row that does not fit is broken by some terminals, and cut by others. Each counts
        as one here: a panel that was broken leaves a row behind, and no text is erased.
        """
        line_break = self._text.resize(max(20, width - 1))
        panel, self._panel = self._panel, None
        if panel is None:
            return line_break
        return _erased(panel, 0 if line_break else self.column)

    def compose(self, text: str, panel: Panel | None) -> str:
        """Return the bytes that append `text`, wrapped at words, and draw the panel below it.

        Without a panel, the cursor stays at the end of the text.
        """
        if not text and panel == self._panel:
            return ""
        erased = _erased(self._panel, self.column) if self._panel is not None else ""
        drawn = erased + self._text.feed(text)
        self._panel = panel
        if panel is None:
            return drawn
        if self.column:
            drawn += "\n"
        drawn += "\n".join(panel.rows)
        up = len(panel.rows) - 1 - panel.row
        return drawn + (f"\x1b[{up}A" if up else "") + "\r" + _right(panel.column)


def _erased(panel: Panel, column: int) -> str:
    """Return the bytes that erase a panel, and go to `column` of the text above it."""
    up = panel.row + (1 if column else 0)
    return (f"\x1b[{up}A" if up else "") + "\r" + _right(column) + CLEAR_BELOW


def _right(cells: int) -> str:
    return f"\x1b[{cells}C" if cells else ""
