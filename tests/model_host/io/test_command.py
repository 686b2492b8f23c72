"""The process of a host: its threads have room for what was checked (DECISIONS D160)."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from model_host.grammar import GrammarSource
from model_host.io.profiles.grammar_checker import GrammarChecker
from tests.support.distributions import distribution

DEEP = 700
"""Rules of a chain that half a megabyte of stack is not enough for, and 4 MiB are."""
_COMPILE = """
import asyncio, sys
from model_host.grammar_engine import check
from model_host.io.command import give_threads_room

if sys.argv[1] == "with room":
    give_threads_room()
print("problem:", asyncio.run(asyncio.to_thread(check, sys.stdin.read())))
"""


def _chain(rules: int) -> str:
    lines = (f'a{n}: "x" a{n + 1}' for n in range(rules))
    text = "start: a0\n" + "\n".join(lines) + f'\na{rules}: "y"'
    return json.dumps({"grammars": [{"name": "answer", "lark_grammar": text}]})


@pytest.mark.parametrize(("room", "is_whole"), [("with room", True), ("without", False)])
def test_a_grammar_that_was_checked_ends_no_host_with_small_stacks(
    room: str, is_whole: bool
) -> None:
    grammar = _chain(DEEP)
    asyncio.run(GrammarChecker().check(GrammarSource(grammar), b"owner"))
    done = subprocess.run(
        ["sh", "-c", 'ulimit -c 0; ulimit -s 512; exec "$@"', "sh",
         sys.executable, "-c", _COMPILE, room],
        input=grammar, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.stdout == "problem: \n") == is_whole, done.stderr
    assert (done.returncode == 0) == is_whole


def test_a_host_without_its_packages_says_how_to_install_them(tmp_path: Path) -> None:
    distribution(tmp_path, 'gone; extra == "host"')
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\")")
    done = subprocess.run(
        [sys.executable, "-m", "model_host", "serve", "--data-dir", str(tmp_path / "host")],
        cwd=tmp_path,  # which comes first
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "not installed: gone" in done.stderr
    assert "pip install 'antiphon[host]'" in done.stderr
    assert "Traceback" not in done.stderr
