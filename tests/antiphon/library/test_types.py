"""What a type checker knows of the library: each name has a type, and no other name is one."""

import subprocess
import sys
from pathlib import Path

import antiphon
from antiphon import aio
from antiphon.library import raised

NAMES = [*(f"antiphon.{name}" for name in (*antiphon.__all__, *antiphon._TYPES, *raised.__all__)),
         *(f"antiphon.aio.{name}" for name in (*aio.__all__, *raised.__all__))]  # fmt: skip
WRONG = ["antiphon.CallOpenn", "antiphon.Nothing", "antiphon.aio.Nothing", "antiphon.aio.Draft"]


def test_mypy_has_a_type_for_each_name_and_refuses_others(tmp_path: Path):
    """Its reason for 10 s: a type checker reads the library."""
    known = [name for name in NAMES if name != "antiphon.aio"]
    lines = ["import antiphon", *(f"reveal_type({name})" for name in (*known, *WRONG))]
    program = tmp_path / "program.py"
    program.write_text("\n".join(lines))
    command = [sys.executable, "-m", "mypy", "--strict", "--no-pretty", str(program)]
    done = subprocess.run(
        command,
        check=False,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(antiphon.__file__).parents[1],
    )
    revealed = [line for line in done.stdout.splitlines() if "Revealed type is" in line]
    assert len(revealed) == len(lines) - 1
    untyped = [line for line in revealed[: len(known)] if 'is "Any"' in line]
    assert untyped == []
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert [error.rpartition("[")[2] for error in errors] == ["attr-defined]"] * len(WRONG)
