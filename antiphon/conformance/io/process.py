"""The process under test: one JSON line for each question, one for each answer."""

import json
import queue
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, Any

ANSWER_SECONDS_MAX = 60
RESTARTS_MAX = 20

Json = dict[str, Any]


class CommandUnusable(Exception):
    """The command cannot be started, or ends again and again."""


class NoAnswer(Exception):
    """The process ended, took too long, or wrote something else than an answer."""


class Answerer:
    """A command that answers questions; it is started again where it ends."""

    def __init__(self, command: Sequence[str]) -> None:
        """Start the command. Raises CommandUnusable."""
        self._command = list(command)
        self._starts = 0
        self._asked = 0
        self._start()

    def _start(self) -> None:
        self._starts += 1
        if self._starts > RESTARTS_MAX:
            raise CommandUnusable(f"the command ended {RESTARTS_MAX} times")
        try:
            self._process = subprocess.Popen(  # noqa: S603  # the user's own command
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        except OSError as error:
            raise CommandUnusable(f"{self._command[0]} cannot be started: {error}") from error
        assert self._process.stdout is not None
        self._lines: queue.Queue[bytes] = queue.Queue()
        self._reader = threading.Thread(
            target=_read, args=(self._process.stdout, self._lines), daemon=True
        )
        self._reader.start()

    def ask(self, question: Json) -> Json:
        """Return the answer. Raises NoAnswer, after which the process is another one."""
        self._asked += 1
        line = json.dumps({"number": self._asked, **question}).encode() + b"\n"
        try:
            return self._answer(line)
        except NoAnswer:
            self.close()
            self._start()
            raise

    def _answer(self, line: bytes) -> Json:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
            answered = self._lines.get(timeout=ANSWER_SECONDS_MAX)
        except OSError as error:
            raise NoAnswer("the process ended") from error
        except queue.Empty:
            raise NoAnswer(f"no answer within {ANSWER_SECONDS_MAX} s") from None
        if not answered:
            raise NoAnswer("the process ended")
        try:
            value = json.loads(answered, parse_int=_number)
        except ValueError:
            raise NoAnswer(f"no JSON: {answered[:100]!r}") from None
        if not isinstance(value, dict) or value.get("number") != self._asked:
            raise NoAnswer(f"not the answer to question {self._asked}: {answered[:100]!r}")
        return value

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        self._reader.join(timeout=5)  # a child of the command may hold the pipe
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):  # what was not written yet is lost
                    pipe.close()


def _number(digits: str) -> int | float:
    """Read a JSON number as ECMAScript does: beyond 2^53 as a double."""
    value = int(digits)
    return value if abs(value) < 2**53 else float(value)


def _read(pipe: IO[bytes], lines: "queue.Queue[bytes]") -> None:
    try:
        for line in pipe:
            lines.put(line)
    except ValueError:
        pass  # the pipe was closed together with its process
    lines.put(b"")
