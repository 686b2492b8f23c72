"""What a terminal of a given width shows after some output: only what the command uses."""

import re

from rich.cells import cell_len

_SEQUENCE = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])")
_NARROW = re.compile(r"[ -~]+")
_IGNORED = ("m", "h", "l")


class VirtualScreen:
    """Rows of cells, a cursor, and what scrolled off the top."""

    def __init__(self, columns: int, rows: int = 40) -> None:
        self._columns = columns
        self._height = rows
        self._rows: list[list[str]] = [[]]
        self._row = 0
        self._column = 0
        self._begun = ""

    @property
    def lines(self) -> list[str]:
        """All rows since the beginning, without trailing spaces."""
        shown = ["".join(row).rstrip() for row in self._rows]
        while shown and not shown[-1]:
            shown.pop()
        return shown

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def cursor(self) -> tuple[int, int]:
        return self._row, self._column

    def feed(self, output: str) -> "VirtualScreen":
        output, self._begun = self._begun + output, ""
        at = 0
        while at < len(output):
            if output[at] == "\x1b":
                found = _SEQUENCE.match(output, at)
                if found is None:  # its end has not arrived
                    assert len(output) - at < 16, f"unknown sequence {output[at : at + 16]!r}"
                    self._begun = output[at:]
                    break
                self._control(found[1], found[2])
                at = found.end()
                continue
            if plain := _NARROW.match(output, at):
                self._write_narrow(plain[0])
                at = plain.end()
                continue
            self._put(output[at])
            at += 1
        return self

    def _put(self, char: str) -> None:
        if char == "\r":
            self._column = 0
        elif char == "\n":
            self._down()
        elif char == "\b":
            self._column = max(0, self._column - 1)
        elif char == "\x07":
            pass
        else:
            assert char.isprintable(), f"{char!r} is written"
            self._write(char)

    def _down(self) -> None:
        self._row += 1
        if self._row == len(self._rows):
            self._rows.append([])

    def _write(self, char: str) -> None:
        width = cell_len(char)
        if self._column + width > self._columns:
            self._column = 0
            self._down()
        row = self._rows[self._row]
        row += [" "] * (self._column + width - len(row))
        row[self._column] = char
        for extra in range(1, width):
            row[self._column + extra] = ""
        self._column += width

    def _write_narrow(self, text: str) -> None:
        """Write characters of one cell each."""
        while text:
            if self._column >= self._columns:
                self._column = 0
                self._down()
            fits = text[: self._columns - self._column]
            row, end = self._rows[self._row], self._column + len(fits)
            row += [" "] * (end - len(row))
            row[self._column : end] = fits
            self._column = end
            text = text[len(fits) :]

    def _control(self, digits: str, name: str) -> None:
        count = int(digits) if digits.isdecimal() else 1
        match name:
            case "A":
                top = max(0, len(self._rows) - self._height)
                assert self._row - count >= top, "the cursor leaves the screen"
                self._row -= count
            case "B":
                self._row = min(self._row + count, len(self._rows) - 1)
            case "C":
                self._column = min(self._column + count, self._columns - 1)
            case "D":
                self._column = max(0, self._column - count)
            case "J":
                del self._rows[self._row][self._column :]
                del self._rows[self._row + 1 :]
            case "K":
                del self._rows[self._row][self._column :]
            case _:
                assert name in _IGNORED, f"unknown sequence {digits}{name}"
