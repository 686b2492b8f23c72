"""The start of the host's process, and Ctrl-C meanwhile."""

import signal
import subprocess
import sys

import pytest

from tests.antiphon.cli.processes import ROOT

INTERRUPTED = """
import os, runpy, signal, sys

class CtrlC:
    def find_spec(self, name, *_rest):
        if name == "{module}":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, CtrlC())
sys.argv = ["model_host", "{command}"]
runpy.run_module("model_host", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("command", ["serve", "pull"])
@pytest.mark.parametrize("module", ["model_host.engine", "model_host.io"])
def test_ctrl_c_while_a_host_starts_prints_no_traceback(module: str, command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED.format(module=module, command=command)],
        check=False, cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")
