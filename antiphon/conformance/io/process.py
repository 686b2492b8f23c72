"""The process under test: one JSON line for each question, one for each answer."""

import json
import os
import selectors
import subprocess
import threading
import time
from collections.abc import Sequence
from typing import IO, Any, NoReturn

ANSWER_SECONDS_MAX = 60
ANSWER_BYTES_MAX = 16 * 1024 * 1024
"""Many times the longest right answer."""
RESTARTS_MAX = 20
SILENCES_MAX = 5
"""Questions without an answer in time, of a command that answered others."""
_LOOK_S = 0.25
"""Interval of looks whether the process is still there."""
_PART_BYTES = 1 << 16

Json = dict[str, Any]


class CommandUnusable(Exception):
    """The command cannot be started."""


class CommandGone(Exception):
    """The command ended or stayed silent again and again: it is asked no more."""


class NoAnswer(Exception):
    """The process ended, took too long, or wrote something else than an answer."""


class _Silent(NoAnswer):
    """It took too long."""


class Answerer:
    """A command that answers questions; it is started again where it ends."""

    def __init__(self, command: Sequence[str]) -> None:
        """Start the command. Raises CommandUnusable."""
        self._command = list(command)
        self._starts = 0
        self._silences = 0
        self._asked = 0
        self._has_answered = False
        self._in_use = threading.Lock()
        """Held while a question is asked: the pipes are closed behind that."""
        self._process: subprocess.Popen[bytes] | None = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        self._starts += 1
        self._received = bytearray()
        try:
            process = subprocess.Popen(  # noqa: S603  # the user's own command
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
            )
        except OSError as error:
            raise CommandUnusable(f"{self._command[0]} cannot be started: {error}") from error
        for pipe in _pipes(process):
            os.set_blocking(pipe.fileno(), False)
        return process

    def ask(self, question: Json) -> Json:
        """Return the answer. Raises NoAnswer, after which the process is another one.

        Raises CommandGone for each question after too many of these.
        """
        with self._in_use:
            self._check_patience()
            process = self._process = self._process or self._started()
            self._asked += 1
            line = json.dumps({"number": self._asked, **question}).encode() + b"\n"
            try:
                answer = self._answer(process, line)
            except NoAnswer as error:
                self._silences += isinstance(error, _Silent)
                self._end(process)
                raise
            self._has_answered = True
            return answer

    def _check_patience(self) -> None:
        if self._silences and not self._has_answered:
            raise CommandGone(f"the command gave no answer at all within {ANSWER_SECONDS_MAX} s")
        if self._silences >= SILENCES_MAX:
            silence = f"gave no answer within {ANSWER_SECONDS_MAX} s"
            raise CommandGone(f"the command {silence} to {self._silences} questions")
        if self._process is None and self._starts >= RESTARTS_MAX:
            raise CommandGone(f"the command ended, or wrote no answer, {RESTARTS_MAX} times")

    def _answer(self, process: subprocess.Popen[bytes], line: bytes) -> Json:
        answered = self._exchange(process, line)
        try:
            value = json.loads(answered, parse_int=_number, parse_constant=_refuse)
        except (ValueError, RecursionError):
            raise NoAnswer(f"no JSON: {answered[:100]!r}") from None
        if not isinstance(value, dict) or value.get("number") != self._asked:
            raise NoAnswer(f"not the answer to question {self._asked}: {answered[:100]!r}")
        return value

    def _exchange(self, process: subprocess.Popen[bytes], line: bytes) -> bytes:
        """Write a question and read a line. Reads meanwhile: neither side waits for the other."""
        given, taken = _pipes(process)
        unsent, give_up_at = memoryview(line), time.monotonic() + ANSWER_SECONDS_MAX
        with selectors.DefaultSelector() as ready:
            ready.register(given, selectors.EVENT_WRITE)
            ready.register(taken, selectors.EVENT_READ)
            while (end := self._received.find(b"\n")) < 0:
                left_s = give_up_at - time.monotonic()
                has_ended = process.poll() is not None
                found = ready.select(max(0.0, min(left_s, _LOOK_S)))
                if not found and has_ended:  # its children may hold the pipes open
                    raise NoAnswer("the process ended")
                if not found and left_s <= 0:
                    raise _Silent(f"no answer within {ANSWER_SECONDS_MAX} s")
                for key, _ in found:
                    if key.fileobj is taken:
                        self._receive(taken)
                        continue
                    unsent = unsent[_written(given, unsent) :]
                    if not unsent:
                        ready.unregister(given)
        if unsent:
            raise NoAnswer("a line that was written before the whole question was read")
        answered = bytes(self._received[:end])
        del self._received[: end + 1]
        return answered

    def _receive(self, taken: IO[bytes]) -> None:
        part = taken.read(_PART_BYTES)
        if not part:
            raise NoAnswer("the process ended")
        self._received += part
        if len(self._received) > ANSWER_BYTES_MAX:
            raise NoAnswer(f"an answer of more than {ANSWER_BYTES_MAX} bytes")

    def close(self) -> None:
        """End the process, and the question that another thread asks it."""
        process = self._process
        if process is not None:
            process.kill()
            with self._in_use:
                self._end(process)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()
        for pipe in _pipes(process):
            pipe.close()
        self._process = None


def _pipes(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    assert process.stdin is not None and process.stdout is not None
    return process.stdin, process.stdout


def _written(pipe: IO[bytes], data: memoryview) -> int:
    """Write what the pipe takes now; return the number of bytes."""
    try:
        return pipe.write(data) or 0
    except OSError as error:
        raise NoAnswer("the process ended") from error


def _number(digits: str) -> int | float:
    """Read a JSON number as ECMAScript does: beyond 2^53 as a double."""
    value = int(digits)
    return value if abs(value) < 2**53 else float(value)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")
