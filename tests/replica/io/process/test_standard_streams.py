"""Standard output that refuses what is written, and streams that were closed before."""

import os
import sys
from pathlib import Path

import pytest

from replica.io.process.standard_streams import OutputFailed, ReaderGone, guarded_streams


@pytest.mark.parametrize("flushes", [True, False], ids=["at once", "at the end"])
def test_a_full_disk_behind_standard_output_is_a_typed_error(
    flushes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(OutputFailed, match="standard output: No space left"), guarded_streams():
            print("data", flush=flushes)
        assert sys.stdout is full
        print("what is left in the buffers is refused no more", flush=True)


def test_the_end_of_a_program_does_not_hide_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(OutputFailed), guarded_streams():
            print("data")
            sys.exit(0)


def test_a_reader_that_has_gone_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        with pytest.raises(ReaderGone), guarded_streams():
            print("data", flush=True)


def test_closed_streams_read_and_write_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    with guarded_streams():
        assert sys.stdin.read() == ""
        print("data", flush=True)
        print("words", file=sys.stderr, flush=True)
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        stream.close()  # else open until the process ends
