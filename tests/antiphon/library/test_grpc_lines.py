"""gRPC's core prints nothing in a program that uses the library."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
AS_GRPC_IS_LOADED = """
import os, sys

class Watch:
    def find_spec(self, name, *_rest):
        if name == "grpc":
            print("verbosity", os.environ.get("GRPC_VERBOSITY"), flush=True)
            os._exit(0)  # nothing that comes later matters

sys.meta_path.insert(0, Watch())
import antiphon
"""


@pytest.mark.parametrize("first", ["antiphon.open", "antiphon.aio", "antiphon.local"])
def test_grpc_is_silent_from_the_moment_it_is_loaded(first: str) -> None:
    """It reads the variable then, and not again."""
    assert printed(first) == "verbosity NONE\n"


def test_a_program_that_wants_the_lines_of_grpc_gets_them() -> None:
    assert printed("antiphon.open", GRPC_VERBOSITY="INFO") == "verbosity INFO\n"


def printed(first: str, **given: str) -> str:
    """Return what is printed as gRPC is loaded for the first name that a program uses."""
    inherited = {name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"}
    done = subprocess.run(
        [sys.executable, "-c", AS_GRPC_IS_LOADED + first],
        check=True, cwd=ROOT, capture_output=True, text=True, timeout=60, env=inherited | given,
    )  # fmt: skip
    return done.stdout
