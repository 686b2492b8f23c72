"""Where words go: stdout is data, stderr is for people.

With `--json`, stdout carries one JSON object per line and nothing else; an
error is such an object too. Colour and width come from rich, which knows
terminals and NO_COLOR.
"""

import json
import sys
from typing import Any

from rich.console import Console
from rich.text import Text

from replica.errors import AntiphonError


class Output:
    """The two streams of one command."""

    def __init__(self, *, as_json: bool = False) -> None:
        """Write to the process's own streams."""
        self.as_json = as_json
        self.data = Console(highlight=False, soft_wrap=True)
        self.people = Console(stderr=True, highlight=False, soft_wrap=True)

    def emit(self, record: dict[str, Any]) -> None:
        """Write one JSON object as a line of data."""
        sys.stdout.write(json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n")
        sys.stdout.flush()

    def show(self, line: str | Text = "") -> None:
        """Write a line of data for people to read; nothing with --json."""
        if not self.as_json:
            self.data.print(line, markup=False)

    def note(self, line: str | Text) -> None:
        """Tell people what happens, on stderr."""
        self.people.print(line, markup=False)

    def fail(self, error: AntiphonError) -> None:
        """Say what happened, what to do next, and the reason word."""
        if self.as_json:
            self.emit({"error": error_record(error)})
        head = Text.assemble(("error", "bold red"), ": ", error.detail.rstrip())
        self.people.print(head)
        why = why_of(error)
        if why:
            self.people.print(Text.assemble(("  why     ", "dim"), why))
        self.people.print(Text.assemble(("  next    ", "dim"), error.next_step))
        self.people.print(Text.assemble(("  reason  ", "dim"), error.reason), style=None)

    @property
    def is_terminal(self) -> bool:
        """Say whether people watch both streams on a terminal."""
        return self.data.is_terminal and self.people.is_terminal and not self.as_json

    @property
    def is_ascii(self) -> bool:
        """Say whether the terminal takes ASCII only."""
        return not (self.people.encoding or "").lower().startswith("utf")


def brief(error: AntiphonError) -> str:
    """Return an error in one short line, with its reason word.

    What gRPC says of a connection is a chain of causes; the last one tells.
    """
    detail = error.detail.rpartition(": ")[2] if error.reason == "HUB_UNREACHABLE" else error.detail
    return f"{detail[:1].lower()}{detail[1:].rstrip('.')} [{error.reason}]"


def why_of(error: AntiphonError) -> str:
    """Return the general rule behind an error, where its detail does not say it already."""
    rule = (type(error).__doc__ or "").split("\n")[0]
    return rule if rule and rule != error.detail else ""


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
