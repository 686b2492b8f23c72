"""The output of the demo: steps, streamed answers, checks, and the summary."""

import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from antiphon.cli.terminal import WrappedText
from antiphon.cli.views import Output, plain_table, usage_line, wrapped
from replica.errors import AntiphonError
from replica.io import Delta, Discarded, Finished, TurnEvent

INDENT = "  "


class DemoOutput:
    """The screen output and the results of one demo."""

    def __init__(self, *, as_json: bool) -> None:
        """Write to stdout, or to stderr if stdout is for JSON."""
        self.result: dict[str, Any] = {}
        self.checks: list[tuple[str, bool, str]] = []
        self._as_json = as_json
        self._file = sys.stderr if as_json else sys.stdout
        self._console = Console(file=self._file, highlight=False, soft_wrap=True)
        self._text = WrappedText(min(100, self._console.width) - 12)

    @property
    def is_success(self) -> bool:
        """Say whether every check held."""
        return bool(self.checks) and all(ok for _, ok, _ in self.checks)

    def begin_step(self, number: int, title: str) -> None:
        """Print the heading of a step."""
        self._console.print()
        self._console.print(Text(f"{number}  {title}", style="bold"))

    def say(self, line: str) -> None:
        """Print a line about the current action."""
        for part in line.split("\n"):
            self._console.print(Text(INDENT + " " + part, style="dim"))

    def verbatim(self, output: str) -> None:
        """Print the output of a command."""
        for line in output.splitlines():
            shown = Text(INDENT + " " + line)
            shown.truncate(max(20, self._console.width - 1), overflow="ellipsis")
            self._console.print(shown)

    def question(self, text: str | None) -> None:
        """Print the question and the label of its answer."""
        if text is not None:
            self._console.print(Text.assemble(INDENT, (" you    ", "cyan"), text))
        self._console.print(Text.assemble(INDENT, (" model  ", "green")), end="")
        self._text.column = 0

    def answer(self, event: TurnEvent) -> None:
        """Print an answer as it is streamed, then its cost."""
        match event:
            case Delta(text):
                self._write(text)
            case Discarded():
                self._write("\n[the host started the answer again]\n")
            case Finished(_, generation):
                self._console.print()
                width = self._console.width - 12 if self._console.is_terminal else 0
                for line in wrapped(usage_line(generation.usage), width, " · "):
                    self._console.print(Text(INDENT + " " * 8 + line, "dim"))
            case _:
                pass

    def _write(self, text: str) -> None:
        if self._console.is_terminal:
            text = self._text.feed(text)
        self._file.write(text.replace("\n", "\n" + INDENT + " " * 8))
        self._file.flush()

    def check(self, promise: str, ok: bool, detail: str) -> None:  # a verdict
        """Record and print whether a guarantee held."""
        self.checks.append((promise, ok, detail))
        mark = ("held    ", "bold green") if ok else ("FAILED  ", "bold red")
        self._console.print(Text.assemble(INDENT, " ", mark, promise, (f"  ({detail})", "dim")))

    def fail(self, error: AntiphonError) -> None:
        """Print the error that ended the demo."""
        self._console.print()
        Output(as_json=self._as_json).fail(error)

    def summarize(self) -> None:
        """Print the table of all checks."""
        self.begin_step(6, "Summary: guarantees and measurements")
        table = plain_table()
        for name in ("", "promise"):
            table.add_column(name, no_wrap=True)
        table.add_column("measured")
        for promise, ok, detail in self.checks:
            mark = Text("held", style="green") if ok else Text("FAILED", style="bold red")
            table.add_row(mark, promise, detail)
        restored, computed = self.result.get("ttft_restored_s"), self.result.get("ttft_reprefill_s")
        if restored is not None and computed is not None:
            table.add_row(
                "", "time to first token",
                f"{restored:.2f} s restored, {computed:.2f} s recomputed",
            )  # fmt: skip
        sizes = self.result.get("wire_bytes_per_turn", [])
        table.add_row("", "bytes per turn", bytes_words(sizes))
        self._console.print(table)


def bytes_words(sizes: Sequence[int]) -> str:
    """Return sizes as one line of text."""
    return " · ".join(f"{size:,}" for size in sizes) + " B"
