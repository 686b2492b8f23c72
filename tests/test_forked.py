"""A forked program is a process like others (tests/support/forked.py)."""

import os
import select
import signal
import subprocess
import sys
import tempfile

import pytest

from tests.support.forked import ROOT, Forked, Forks

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


def stood_for(output: int) -> "subprocess.Popen[str]":
    """Start a program that reads JSON as a shell does; return the process that stands for it."""
    descriptor = FORKS.lend()
    return subprocess.Popen(
        [sys.executable, "-S", "-m", "tests.support.forked_here", "json.tool"], cwd=ROOT,
        env=os.environ | {"FORKS": str(descriptor)}, pass_fds=[descriptor],
        stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def test_one_that_a_shell_has_started_ends_with_the_process_that_stands_for_it() -> None:
    """Its exit code is that one's, and it is killed where that one is."""
    with stood_for(subprocess.PIPE) as process:
        assert "Expecting value" in process.communicate("[", timeout=30)[0]
        assert process.returncode == 1
    waits, ends = os.pipe()
    with stood_for(ends) as killed:
        assert killed.stdin is not None
        killed.stdin.write("[" * 200_000)  # more than a pipe holds: it has begun to read
        killed.stdin.flush()
        os.close(ends)
        killed.kill()
        assert select.select([waits], [], [], 30)[0] and os.read(waits, 1) == b""
    os.close(waits)
