"""Where the command begins, and Ctrl-C while it does."""

import os
import subprocess
import sys
import tomllib

import pytest

from antiphon.cli.entry import EXIT_INTERRUPTED
from tests.antiphon.cli.processes import ROOT

INTERRUPTED = """
import sys

class CtrlC:
    def find_spec(self, name, *_rest):
        if name == "{module}":
            raise KeyboardInterrupt

sys.meta_path.insert(0, CtrlC())
sys.argv = ["antiphon", "list"]
from antiphon.cli.entry import main
main()
"""


@pytest.mark.parametrize("module", ["antiphon.cli.main", "typer", "antiphon.cli.commands.send"])
def test_ctrl_c_while_modules_are_loaded_prints_no_traceback(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED.format(module=module)],
        check=False, cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (EXIT_INTERRUPTED, "", "")


def test_the_installed_command_begins_there() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts["antiphon"] == "antiphon.cli.entry:main"


@pytest.mark.parametrize(
    ("arguments", "status", "shown"),
    [(["--version"], 0, "antiphon "), (["no-such-command"], 2, "no-such-command")],
)
def test_the_package_runs_as_the_command(arguments: list[str], status: int, shown: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "antiphon", *arguments],
        check=False, cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == status
    assert shown in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


AS_GRPC_IS_LOADED = """
import os, sys

class Watch:
    def find_spec(self, name, *_rest):
        if name == "grpc":
            print("verbosity", os.environ.get("GRPC_VERBOSITY"))

sys.meta_path.insert(0, Watch())
sys.argv = ["antiphon", "--version"]
from antiphon.cli.entry import main
main()
"""


def test_grpc_is_silent_from_the_moment_it_is_loaded() -> None:
    """It reads the variable then: a hub's end of an idle connection was a line on the screen."""
    done = subprocess.run(
        [sys.executable, "-c", AS_GRPC_IS_LOADED],
        check=True, cwd=ROOT, capture_output=True, text=True, timeout=60,
        env={name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"},
    )  # fmt: skip
    assert done.stdout.startswith("verbosity NONE\n")
