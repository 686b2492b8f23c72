"""The line being typed: keys in, text and cursor out.

Pure. Bytes of a terminal in raw mode come in as they arrive, also in the middle of a
character or of a sequence. A paste between the marks of a terminal (bracketed paste) is
one piece of text with its line breaks; \"\"\" opens a text of several lines that \"\"\" ends.
"""

import codecs
import re
from dataclasses import dataclass, field

from rich.cells import cell_len

from replica.conversation import is_shown, is_typed

PASTE_BEGIN, PASTE_END = "\x1b[200~", "\x1b[201~"
QUOTES = '"""'
TEXT_CHARACTERS_MAX = 1 << 20
"""Characters kept of one text; more are not taken, which `Cut` says."""
HISTORY_MAX = 500
_LAID_OUT = 1024
"""Characters before and behind the cursor that are laid out in any case."""
_ESCAPE = "\x1b"
_BEGUN = re.compile(r"\x1b(?:[\[O][ -?]*)?")
"""A sequence up to the character that ends it, which is no control."""
_PLAIN = re.compile(r"[^\x00-\x08\n-\x1f\x7f]+")
"""Characters that are no keys of their own; a paste without marks has thousands."""
_WORD = " \t\n"
_MOVES = {
    "[A": "up", "OA": "up", "[B": "down", "OB": "down", "[C": "right", "OC": "right",
    "[D": "left", "OD": "left", "[H": "home", "OH": "home", "[1~": "home", "[F": "end",
    "OF": "end", "[4~": "end", "[3~": "delete", "\r": "newline", "\n": "newline",
}  # fmt: skip
_CONTROLS = {
    "\x01": "home", "\x02": "left", "\x05": "end", "\x06": "right", "\x0e": "down",
    "\x10": "up", "\x7f": "backspace", "\x08": "backspace", "\x0b": "cut_end",
    "\x15": "cut_start", "\x17": "cut_word",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Submitted:
    """Enter was pressed; the line is empty again."""

    text: str
    """As it was typed, with its triple quotes."""


@dataclass(frozen=True, slots=True)
class Interrupted:
    """Ctrl-C was pressed; the line is unchanged."""


@dataclass(frozen=True, slots=True)
class Suspended:
    """Ctrl-Z was pressed; the line is unchanged."""


@dataclass(frozen=True, slots=True)
class Ended:
    """Ctrl-D was pressed on an empty line."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Characters were not taken, since the text is full."""


Typed = Submitted | Interrupted | Suspended | Ended | Cut


def is_open(text: str) -> bool:
    """Say whether a text begins with triple quotes that are not closed yet."""
    begun = text.lstrip()
    return begun.startswith(QUOTES) and (
        len(begun.rstrip()) < 2 * len(QUOTES) or not begun.rstrip().endswith(QUOTES)
    )


def without_quotes(text: str) -> str:
    """Return a text without the triple quotes around it, and the line breaks beside them."""
    bare = text.strip()
    if len(bare) < 2 * len(QUOTES) or not (bare.startswith(QUOTES) and bare.endswith(QUOTES)):
        return text
    return bare[len(QUOTES) : -len(QUOTES)].strip("\n")


def _text_of(keys: str) -> str:
    """Return what is text of typed or pasted characters."""
    return "".join(char for char in keys if char in "\n\t" or is_typed(char))


@dataclass(slots=True)
class LineEditor:
    """The text, the cursor in it, and the texts submitted before."""

    text: str = ""
    cursor: int = 0
    history: list[str] = field(default_factory=list)
    _decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )
    _rest: str = ""
    """The beginning of a sequence whose end has not arrived."""
    _pasting: bool = False
    _is_cut: bool = False
    """Whether characters were not taken, which `feed` has not said yet."""
    _at: int | None = None
    """The index in the history that is shown; None for the line being typed."""
    _typed: str = ""
    _is_put_back: bool = False
    """Whether the line is a text that was put back, and no key has changed it."""
    _kept: str = ""
    """The text that comes back once the command that was typed first is submitted or erased."""

    @property
    def unsent(self) -> list[str]:
        """The texts that were typed and not submitted, or put back."""
        return [text for text in (self._kept, self.text) if text.strip()]

    def feed(self, data: bytes) -> list[Typed]:
        """Apply the bytes of the terminal; return the keys that are not edits."""
        self._rest += self._decoder.decode(data)
        found: list[Typed] = []
        while self._rest:
            if self._pasting:
                if not self._paste():
                    break
                continue
            if self._rest[0] == _ESCAPE:
                if not self._sequence():
                    break
                continue
            plain = _PLAIN.match(self._rest)
            if plain is not None:
                self._rest = self._rest[plain.end() :]
                self._type(_text_of(plain[0]))
                continue
            char, self._rest = self._rest[0], self._rest[1:]
            key = self._key(char)
            if key is not None:
                found.append(key)
        if self._is_cut and not self._pasting:
            self._is_cut = False
            found.append(Cut())
        return found

    def put(self, text: str) -> None:
        """Replace the line, with the cursor at its end."""
        self.text, self.cursor = text, len(text)

    def put_back(self, text: str) -> bool:
        """Put a text that was refused into the line; a command can be typed before it.

        Returns False where another text is in the line by now: it stays.
        """
        if self.text:
            return False
        self.put(text)
        self._is_put_back = True
        return True

    # --- keys ---------------------------------------------------------------------

    def _key(self, char: str) -> Typed | None:
        if char in "\r\n":
            return self._enter()
        if char == "\x03":
            return Interrupted()
        if char == "\x1a":
            return Suspended()
        if char == "\x04":
            if not self.text:
                return Ended()
            self._do("delete")
        elif char in _CONTROLS:
            self._do(_CONTROLS[char])
        return None

    def _enter(self) -> Typed | None:
        if is_open(self.text):
            self._insert("\n")
            return None
        text = self.text
        if text.strip() and self.history[-1:] != [text]:
            self.history = [*self.history, text][-HISTORY_MAX:]
        self.put("")
        self._at, self._is_put_back = None, False
        self._bring_back()
        return Submitted(text)

    def _sequence(self) -> bool:
        """Apply the escape sequence that begins here; False if its end has not arrived."""
        if self._rest.startswith(PASTE_BEGIN):
            self._rest, self._pasting = self._rest[len(PASTE_BEGIN) :], True
            return True
        begun = _BEGUN.match(self._rest)
        assert begun is not None, "it begins with an escape"
        last = self._rest[begun.end() : begun.end() + 1]
        if not last:
            return False
        name = _MOVES.get(begun[0][1:] + last)
        # Another control ends it: a key of its own, or the mark of a paste behind a lone Escape.
        is_part = name is not None or is_typed(last)
        self._rest = self._rest[begun.end() + is_part :]
        if name is not None:
            self._do(name)
        return True

    def _paste(self) -> bool:
        """Insert what was pasted; False if its end has not arrived."""
        pasted, mark, rest = self._rest.partition(PASTE_END)
        if not mark:
            end = len(self._rest) - len(PASTE_END)  # the mark may have begun behind it
            if end > TEXT_CHARACTERS_MAX:
                self._rest = self._rest[:TEXT_CHARACTERS_MAX] + self._rest[end:]
                self._is_cut = True
            return False
        self._rest, self._pasting = rest, False
        self._type(_text_of(pasted.replace("\r\n", "\n").replace("\r", "\n")))
        return True

    def _type(self, text: str) -> None:
        """Insert what was typed or pasted. A command is not joined to a text that was put back."""
        if self._is_put_back and text.startswith("/"):
            self._kept = self.text
            self.put("")
        self._insert(text)

    def _bring_back(self) -> None:
        """Put the text that waits for a command back into the line, which is empty."""
        if self._kept:
            text, self._kept = self._kept, ""
            self.put_back(text)

    def _insert(self, text: str) -> None:
        self._is_put_back = False
        room = TEXT_CHARACTERS_MAX - len(self.text)
        self._is_cut |= len(text) > room
        text = text[: max(0, room)]
        self.text = self.text[: self.cursor] + text + self.text[self.cursor :]
        self.cursor += len(text)

    def _do(self, name: str) -> None:
        before, after = self.text[: self.cursor], self.text[self.cursor :]
        is_put_back, self._is_put_back = self._is_put_back, False
        match name:
            case "left":
                self.cursor = max(0, self.cursor - 1)
            case "right":
                self.cursor = min(len(self.text), self.cursor + 1)
            case "home":
                self.cursor = before.rfind("\n") + 1
            case "end":
                self.cursor += len(after.partition("\n")[0])
            case "newline":
                self._insert("\n")
            case "backspace":
                self.text, self.cursor = before[:-1] + after, max(0, self.cursor - 1)
            case "delete":
                self.text = before + after[1:]
            case "cut_end":
                self.text = before
            case "cut_start":
                self.text, self.cursor = after, 0
            case "cut_word":
                kept = before.rstrip(_WORD)
                kept = kept[: max(map(kept.rfind, _WORD)) + 1]
                self.text, self.cursor = kept + after, len(kept)
            case "up" | "down":
                self._recall(-1 if name == "up" else 1)
        if is_put_back and (self.text[: self.cursor], self.text[self.cursor :]) == (before, after):
            self._is_put_back = True  # the key has changed nothing
        if not self.text:
            self._bring_back()

    def _recall(self, step: int) -> None:
        """Show an earlier or later text of the history; after the last, the line being typed."""
        at = len(self.history) if self._at is None else self._at
        if self._at is None:
            self._typed = self.text
        wanted = at + step
        if not 0 <= wanted <= len(self.history):
            return
        self._at = wanted if wanted < len(self.history) else None
        self.put(self._typed if self._at is None else self.history[wanted])

    # --- display ------------------------------------------------------------------

    def rows(self, prompt: str, width: int, rows_max: int) -> tuple[list[str], int, int]:
        """Return the line as rows of fewer than `width` cells, and row and column of the cursor.

        Of a text with more than `rows_max` rows those near the cursor are returned.
        """
        start, end = self.near_cursor(width, rows_max)
        column = cell_len(prompt)
        indent = " " * column
        rows, at = [indent if start else prompt], (0, column)
        for number, char in enumerate((*self.text[start:end], ""), start):
            shown = "    " if char == "\t" else char if char and is_shown(char) else ""
            if char and char != "\n" and column + cell_len(shown) >= width:
                rows.append(indent)
                column = len(indent)
            if number == self.cursor:
                at = (len(rows) - 1, column)
            if char == "\n":
                rows.append(indent)
                column = len(indent)
            else:
                rows[-1] += shown
                column += cell_len(shown)
        first = min(max(0, at[0] - rows_max + 1), max(0, len(rows) - rows_max))
        return rows[first : first + rows_max], at[0] - first, at[1]

    def near_cursor(self, width: int, rows_max: int) -> tuple[int, int]:
        """Return where what is laid out begins and ends: `rows_max` rows on each side, or more.

        A line has one row or more, and a row at most `width` characters that have a cell. To
        lay out all of a long paste takes a second for each key. In a line that is longer than
        this, the beginning moves by whole steps, so that the rows stay where they are meanwhile.
        """
        start, end = self.cursor, self.cursor - 1
        for _ in range(rows_max):
            start = self.text.rfind("\n", 0, max(0, start))
        for _ in range(rows_max):
            end = self.text.find("\n", end + 1)
            if end < 0:
                end = len(self.text)
                break
        step = max(_LAID_OUT, width * rows_max)
        return max(start + 1, (self.cursor // step - 1) * step), min(end, self.cursor + step)
