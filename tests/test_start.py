"""The start of a daemon's process, and Ctrl-C meanwhile."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.antiphon.cli.processes import ROOT

INTERRUPTED = """
import os, runpy, signal, sys

class CtrlC:
    def find_spec(self, name, *_rest):
        if name == "{module}":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, CtrlC())
sys.argv = {arguments}
runpy.run_module("{program}", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize(
    ("program", "arguments", "module"),
    [
        ("syncd", [], "replica.io"),
        ("syncd", [], "syncd.io"),
        # When it is running, in `serve`, and its folder is made.
        ("syncd", ["--listen", "127.0.0.1:0", "--metrics", "0"], "prometheus_client"),
        ("model_host", ["serve"], "model_host.engine"),
        ("model_host", ["serve"], "model_host.io"),
        ("model_host", ["pull"], "model_host.engine"),
        ("model_host", ["pull"], "model_host.io"),
    ],
)
def test_ctrl_c_while_a_daemon_starts_prints_no_traceback(
    program: str, arguments: list[str], module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTIPHON_HUB_DATA_DIR", str(tmp_path / "hub"))
    code = INTERRUPTED.format(program=program, arguments=[program, *arguments], module=module)
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=False, cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")
