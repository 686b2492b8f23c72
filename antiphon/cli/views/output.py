"""Output of commands: data on stdout, messages to the user on stderr.

With `--json`, stdout has one JSON object per line and nothing else; an error is
such an object too. rich determines colour and width and respects NO_COLOR.
Control characters in the text of others are replaced, so that a message can't
control the reader's terminal.
"""

import json
import math
import os
import re
import sys
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from antiphon.cli.views.rows import wrapped
from replica.errors import AntiphonError, record_of
from replica.io import HostUnreachable, PeerError
from replica.refusals import HubUnreachable, ProofInvalid

UNREACHABLE = {
    HubUnreachable.reason: "the hub does not answer",
    HostUnreachable.reason: "the model host does not answer",
}
"""The words for peers that do not answer; the detail has the cause, among those of gRPC."""
CLOCK_STEP = "Compare this machine's clock and its user's key with the hub's, or the host's."
_PICTURES = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"}
_DIRECTIONS = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Characters that change the direction of the text around them."""
_HIDDEN = (*range(0x80, 0xA0), *_DIRECTIONS, 0x2028, 0x2029)
_VISIBLE = _PICTURES | {0x7F: 0x2421} | dict.fromkeys(_HIDDEN, 0xFFFD)
"""Control characters mapped to their visible Unicode symbols, one to one."""
_ESCAPED = re.compile(
    "[\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)
"""The same characters, and those that terminals leave out but models read (Unicode's
Default_Ignorable_Code_Point): JSON has escapes for them. json escapes those below 0x20 itself."""
_UNKNOWN = {("COLUMNS", "0"), ("LINES", "0")}
"""Variables of a terminal whose size is not known."""


class Output:
    """The two streams of one command."""

    def __init__(self, *, as_json: bool = False, is_verbose: bool = False) -> None:
        """Write to the stdout and stderr of the process; verbose, with details of each answer."""
        self.as_json = as_json
        self.is_verbose = is_verbose
        # rich would write nothing at a width of 0, which stands for an unknown one.
        known = {name: value for name, value in os.environ.items() if (name, value) not in _UNKNOWN}
        self.data = Console(highlight=False, soft_wrap=True, _environ=known)
        self.people = Console(stderr=True, highlight=False, soft_wrap=True, _environ=known)

    def emit(self, record: dict[str, Any]) -> None:
        """Write one JSON object as a line of data; a number that JSON lacks is null."""
        only_ascii = not (sys.stdout.encoding or "").lower().startswith("utf")
        line = json.dumps(
            _finite(record), ensure_ascii=only_ascii, separators=(",", ":"), allow_nan=False
        )
        sys.stdout.write(_ESCAPED.sub(_escape, line) + "\n")
        sys.stdout.flush()

    def show(self, line: str | Text = "") -> None:
        """Write a line of data as text; nothing with --json."""
        if not self.as_json:
            self.data.print(_line_of(line))

    def item(self, head: Text, *pieces: str, style: str = "") -> None:
        """Write a line of data: a head, and pieces two spaces apart; nothing with --json.

        On a terminal that is too narrow it is broken between pieces, or else at words.
        """
        if self.as_json:
            return
        line, indent = head.copy(), head.cell_len
        width = self.data.width if self.data.is_terminal else sys.maxsize
        for piece in pieces:
            gap = "  " if line.cell_len > indent else ""
            if gap and line.cell_len + len(gap) + cell_len(piece) > width:
                self.show(line)
                line, gap = Text(" " * indent), ""
            for number, part in enumerate(wrapped(piece, max(0, width - indent))):
                if number:
                    self.show(line)
                    line = Text(" " * indent)
                line.append(f"{gap}{part}" if not number else part, style=style)
        self.show(line)

    def note(self, line: str | Text) -> None:
        """Write a message to stderr, wrapped at words on a terminal."""
        self.people.print(_line_of(line), soft_wrap=not self.people.is_terminal)

    def fail(self, error: AntiphonError) -> None:
        """Report an error: its detail, its rule, the next step and the reason word."""
        if self.as_json:
            self.emit({"error": error_record(error)})
        detail, why = detail_of(error), why_of(error)
        self._hang(Text.assemble(("error", "bold red"), ": "), detail)
        if why:
            self._hang(Text.assemble(("  why     ", "dim")), why)
        self._hang(Text.assemble(("  next    ", "dim")), step_of(error))
        self._hang(Text.assemble(("  reason  ", "dim")), error.reason)

    def _hang(self, head: Text, words: str) -> None:
        """Write text behind a head, with a hanging indent on a terminal."""
        width = self.people.width - head.cell_len if self.people.is_terminal else 0
        for line in wrapped(words, width):
            self.people.print(_line_of(head + line))
            head = Text(" " * head.cell_len)

    @property
    def is_terminal(self) -> bool:
        """Say whether both streams are terminals and the output is text."""
        return self.data.is_terminal and self.people.is_terminal and not self.as_json

    @property
    def can_draw(self) -> bool:
        """Say whether stdout is a terminal whose cursor moves: TERM=dumb is none."""
        return self.data.is_terminal and not self.data.is_dumb_terminal

    @property
    def is_ascii(self) -> bool:
        """Say whether the terminal can show ASCII only."""
        return not (self.people.encoding or "").lower().startswith("utf")


def harmless(text: str) -> str:
    """Return text with visible symbols in place of control characters."""
    return text.translate(_VISIBLE)


def _escape(found: re.Match[str]) -> str:
    """Return a character as JSON escapes it."""
    return json.dumps(found[0])[1:-1]


def _finite(value: Any) -> Any:
    """Return a value for JSON without numbers that are not finite, as peers may send them."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {key: _finite(each) for key, each in value.items()}
        case list() | tuple():
            return [_finite(each) for each in value]
        case _:
            return value


def _line_of(shown: str | Text) -> Text:
    """Return a line without markup and control characters."""
    line = shown if isinstance(shown, Text) else Text(shown)
    line.plain = harmless(line.plain)
    return line


def brief(error: AntiphonError) -> str:
    """Return an error as one short line with its reason word."""
    detail = _last_cause(error.detail) if error.reason in UNREACHABLE else error.detail
    return f"{_as_clause(detail)} [{error.reason}]"


def detail_of(error: AntiphonError) -> str:
    """Return the detail of an error as text for the user."""
    if error.detail == rule_of(error):
        return _as_clause(error.detail)
    if error.reason in UNREACHABLE:
        return f"{UNREACHABLE[error.reason]}: {_as_clause(_last_cause(error.detail))}"
    return error.detail.rstrip()


def _as_clause(sentence: str) -> str:
    """Return a sentence without its capital and full stop, to follow a colon."""
    return f"{sentence[:1].lower()}{sentence[1:].rstrip('.')}"


def _last_cause(detail: str) -> str:
    """Return the last of the causes that gRPC reports for a connection."""
    cause = detail.rstrip().removesuffix(": OK")  # what gRPC adds to an error of TLS
    return cause.rpartition(": ")[2] or detail


def rule_of(error: AntiphonError) -> str:
    """Return the general rule: the first line of the error's docstring."""
    return (type(error).__doc__ or "").split("\n")[0]


def why_of(error: AntiphonError) -> str:
    """Return the general rule of an error, empty if its detail states it already."""
    # The rules of a peer's own reasons are unknown here.
    if isinstance(error, PeerError) or error.reason in UNREACHABLE:
        return ""
    rule = rule_of(error)
    return rule if rule != error.detail else ""


def step_of(error: AntiphonError) -> str:
    """Return what a user can do about an error; that of a proof is a program's elsewhere."""
    return CLOCK_STEP if type(error) is ProofInvalid else error.next_step


def error_record(error: AntiphonError) -> dict[str, Any]:
    """Return an error as a JSON object."""
    return {**record_of(error), "next_step": step_of(error)}
