"""Processes of this project search no folder of a user for modules (DECISIONS D600)."""

import subprocess
from pathlib import Path

import pytest

from replica.io.process.interpreter import python

ROOT = Path(__file__).parents[4]
PROGRAMS = ("antiphon", "model_host", "replica", "syncd")


def test_a_module_of_the_working_directory_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "syncd.py").write_text("print('hostile')\n")
    (tmp_path / "resource.py").write_text("print('hostile')\n")
    monkeypatch.chdir(tmp_path)
    for arguments in (("-m", "syncd", "--help"), ("-c", "import resource")):
        done = subprocess.run(python(*arguments), capture_output=True, text=True, check=True)
        assert "hostile" not in done.stdout


def test_every_process_is_started_so() -> None:
    named = {
        path.relative_to(ROOT).as_posix()
        for program in PROGRAMS
        for path in (ROOT / program).rglob("*.py")
        if "sys.executable" in path.read_text()
    }
    # serve.py names the program that replaces it; its command line is made likewise.
    assert named == {"replica/io/process/interpreter.py", "antiphon/cli/commands/serve.py"}
