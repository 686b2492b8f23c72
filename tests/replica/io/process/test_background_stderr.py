"""A daemon's standard error that nobody reads, for a while or ever."""

import json
import os
import subprocess
import sys
from pathlib import Path

WRITER = """
import sys
from replica.io.process.background_stderr import BackgroundStderr
from replica.io.process.logs import log_to_stderr
import structlog

log_to_stderr("json")
log = structlog.get_logger()
for number in range(int(sys.argv[1])):
    log.info("counted", number=number, text="x" * 500)
print("done", flush=True)
sys.stdin.readline()
log.info("the last line")
"""


def start(lines: int) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(lines)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_a_daemon_goes_on_while_nobody_reads_its_log() -> None:
    with start(10_000) as daemon:
        assert daemon.stdout
        assert daemon.stderr
        assert daemon.stdout.readline() == "done\n"
        read = 0
        while "log lines lost" not in (line := daemon.stderr.readline()):
            assert f'"number": {read},' in line
            read += 1
        assert json.loads(line)["count"] == 10_000 - read
        _, rest = daemon.communicate("\n", timeout=60)
    assert daemon.returncode == 0
    assert "the last line" in rest


def test_a_daemon_ends_though_nobody_ever_reads_its_log() -> None:
    with start(10_000) as daemon:
        assert daemon.stdin
        daemon.stdin.write("\n")
        daemon.stdin.close()
        assert daemon.wait(timeout=60) == 0


def test_a_reader_gets_every_line() -> None:
    with start(100) as daemon:
        _, log = daemon.communicate("\n", timeout=60)
    assert [f'"number": {number},' in log for number in range(100)] == [True] * 100
    assert log.splitlines()[-1].find("the last line") > 0
    assert "lost" not in log


def test_a_file_gets_each_line_at_once(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("w") as file:
        code = (
            "from replica.io.process.background_stderr import BackgroundStderr\n"
            "import os\n"
            "BackgroundStderr(print).write('a line\\n')\n"
            "os._exit(0)\n"
        )
        subprocess.run([sys.executable, "-c", code], stderr=file, check=True, env=os.environ)
    assert path.read_text() == "a line\n"
