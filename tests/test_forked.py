"""A forked program is a process like others (tests/support/forked.py)."""

import os
import signal
import tempfile

import pytest

from tests.support.forked import Forked, Forks

FORKS = Forks("json", "argparse")


def started(given: bytes) -> tuple[Forked, int, int]:
    """Start a program that reads JSON; return it, the end it reads, and the one it writes."""
    stdin, reads = os.pipe()
    os.write(reads, given)
    output = os.open(tempfile.gettempdir(), os.O_TMPFILE | os.O_RDWR)
    process = FORKS.start(["json.tool", "--compact"], os.environ, (stdin, output, output))
    os.close(stdin)
    return process, reads, output


@pytest.mark.parametrize(
    ("given", "code", "shown"), [(b"[ 1 ]", 0, b"[1]\n"), (b"[", 1, b"Expecting value")]
)
def test_it_reads_writes_and_exits(given: bytes, code: int, shown: bytes) -> None:
    process, reads, output = started(given)
    assert process.returncode is None
    os.close(reads)
    assert process.wait(30) == code
    assert os.pread(output, 100, 0).startswith(shown)
    os.close(output)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_it_ends_by_a_signal_and_is_gone_when_it_was_waited_for(number: int) -> None:
    process, reads, output = started(b"[")
    process.send_signal(number)
    assert process.wait(30) == -number
    assert process.returncode == -number
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)
    os.close(reads)
    os.close(output)


def test_it_is_not_waited_for_longer_than_said() -> None:
    process, reads, output = started(b"[")
    with pytest.raises(TimeoutError):
        process.wait(0.01)
    process.kill()
    assert process.wait(30) == -signal.SIGKILL
    os.close(reads)
    os.close(output)
