"""Where words go: stdout is data, stderr is for people.

With `--json`, stdout carries one JSON object per line and nothing else; an
error is such an object too. Colour and width come from rich, which knows
terminals and NO_COLOR. What others wrote is shown without its control
characters: a message must not steer the terminal of who reads it.
"""

import json
import sys
from typing import Any

from rich.console import Console
from rich.text import Text

from antiphon.cli.rows import wrapped
from replica.errors import AntiphonError
from replica.io import PeerError
from replica.refusals import HubUnreachable

HUB_UNREACHABLE = HubUnreachable.reason
_PICTURES = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"}
_VISIBLE = _PICTURES | {0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)
"""Control characters, and the pictures Unicode has of them; as many as before."""


class Output:
    """The two streams of one command."""

    def __init__(self, *, as_json: bool = False) -> None:
        """Write to the process's own streams."""
        self.as_json = as_json
        self.data = Console(highlight=False, soft_wrap=True)
        self.people = Console(stderr=True, highlight=False, soft_wrap=True)

    def emit(self, record: dict[str, Any]) -> None:
        """Write one JSON object as a line of data."""
        only_ascii = not (sys.stdout.encoding or "").lower().startswith("utf")
        line = json.dumps(record, ensure_ascii=only_ascii, separators=(",", ":"))
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    def show(self, line: str | Text = "") -> None:
        """Write a line of data for people to read; nothing with --json."""
        if not self.as_json:
            self.data.print(_line_of(line))

    def note(self, line: str | Text) -> None:
        """Tell people what happens, on stderr; a terminal gets it wrapped at words."""
        self.people.print(_line_of(line), soft_wrap=not self.people.is_terminal)

    def fail(self, error: AntiphonError) -> None:
        """Say what happened, what to do next, and the reason word."""
        if self.as_json:
            self.emit({"error": error_record(error)})
        detail, why = detail_of(error), why_of(error)
        self._hang(Text.assemble(("error", "bold red"), ": "), detail)
        if why:
            self._hang(Text.assemble(("  why     ", "dim")), why)
        self._hang(Text.assemble(("  next    ", "dim")), error.next_step)
        self._hang(Text.assemble(("  reason  ", "dim")), error.reason)

    def _hang(self, head: Text, words: str) -> None:
        """Write words behind a head; what a terminal wraps stands below the first word."""
        width = self.people.width - head.cell_len if self.people.is_terminal else 0
        for line in wrapped(words, width):
            self.people.print(_line_of(head + line))
            head = Text(" " * head.cell_len)

    @property
    def is_terminal(self) -> bool:
        """Say whether people watch both streams on a terminal."""
        return self.data.is_terminal and self.people.is_terminal and not self.as_json

    @property
    def is_ascii(self) -> bool:
        """Say whether the terminal takes ASCII only."""
        return not (self.people.encoding or "").lower().startswith("utf")


def harmless(text: str) -> str:
    """Return text with pictures in place of control characters."""
    return text.translate(_VISIBLE)


def _line_of(shown: str | Text) -> Text:
    """Return a line to print, with nothing in it that rich or a terminal would obey."""
    line = shown if isinstance(shown, Text) else Text(shown)
    line.plain = harmless(line.plain)
    return line


def brief(error: AntiphonError) -> str:
    """Return an error in one short line, with its reason word."""
    detail = _last_cause(error.detail) if error.reason == HUB_UNREACHABLE else error.detail
    return f"{detail[:1].lower()}{detail[1:].rstrip('.')} [{error.reason}]"


def detail_of(error: AntiphonError) -> str:
    """Return what happened, for people."""
    if error.reason == HUB_UNREACHABLE and error.detail != rule_of(error):
        return f"the hub does not answer: {_last_cause(error.detail)}"
    return error.detail.rstrip()


def _last_cause(detail: str) -> str:
    """Return the end of the chain of causes that gRPC tells of a connection."""
    return detail.rpartition(": ")[2] or detail


def rule_of(error: AntiphonError) -> str:
    """Return the general rule an error's class states."""
    return (type(error).__doc__ or "").split("\n")[0]


def why_of(error: AntiphonError) -> str:
    """Return the general rule behind an error, where its detail does not say it already."""
    # Of a peer's own reasons, this version knows no rule.
    if isinstance(error, PeerError) or error.reason == HUB_UNREACHABLE:
        return ""
    rule = rule_of(error)
    return rule if rule != error.detail else ""


def error_record(error: AntiphonError) -> dict[str, Any]:
    """Return an error as a JSON object."""
    return {
        "reason": error.reason,
        "detail": error.detail,
        "next_step": error.next_step,
        "retryable": error.retryable,
        "missing": [m.hex() for m in error.missing],
        "retry_after_s": error.retry_after_s,
    }
