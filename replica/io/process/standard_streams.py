"""The standard streams of a program: what standard output refuses is a typed error."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO, cast

from replica.errors import RequestRefused


class OutputFailed(RequestRefused):
    """Standard output can't be written, as on a full disk."""

    reason = "OUTPUT_FAILED"
    next_step = "Send the output where there is room for it; what the command did is done."


class ReaderGone(BrokenPipeError):
    """Whoever read standard output has closed it, as `head` does: nothing is said of that."""


class _Output:
    """Standard output, but for its errors."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with self._typed_errors():
            return self._stream.write(text)

    def flush(self) -> None:
        with self._typed_errors():
            self._stream.flush()

    @contextmanager
    def _typed_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            # What is left in the buffers would be refused once more when the process ends.
            with Path(os.devnull).open("wb") as nowhere:
                os.dup2(nowhere.fileno(), self._stream.fileno())
            if isinstance(error, BrokenPipeError):
                raise ReaderGone(*error.args) from error
            raise OutputFailed(f"standard output: {error.strerror or error}") from error


@contextmanager
def guarded_streams() -> Iterator[None]:
    """Let standard output raise OutputFailed or ReaderGone, at the end of the block too.

    A stream that was closed before the program began reads and writes nothing, so that no other
    file gets its number.
    """
    if sys.stdin is None:
        sys.stdin = Path(os.devnull).open()  # noqa: SIM115  # until the process ends
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115
    before = sys.stdout
    guarded = sys.stdout = cast(TextIO, _Output(before))
    try:
        yield
    finally:
        sys.stdout = before
        guarded.flush()
