"""What a type checker knows of the library: the types of names and options, and no others."""

import inspect
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import antiphon
from antiphon import aio
from antiphon.library import raised
from antiphon.library.given import RunOptions, SamplingOptions

NAMES = [*(f"antiphon.{name}" for name in (*antiphon.__all__, *antiphon._TYPES, *raised.__all__)),
         *(f"antiphon.aio.{name}" for name in (*aio.__all__, *raised.__all__))]  # fmt: skip
WRONG = ["antiphon.CallOpenn", "antiphon.Nothing", "antiphon.aio.Nothing", "antiphon.aio.Draft"]

OPTIONS = """
async def ask(trip: antiphon.Conversation, aio: antiphon.aio.Conversation) -> None:
    trip.ask("Who?", key="job-17", max_tokens=3, temperature=0.7, tools=[print], calls_max=1)
    trip.ask("Who?", max_token=3)
    trip.run("Who?", temperature="hot")
    await aio.ask("Who?", retry=1)
    aio.run("Who?", seed="7")
"""
OF_OPTIONS = ["call-arg]", "arg-type]", "call-arg]", "arg-type]"]


def test_mypy_has_a_type_for_each_name_and_refuses_others_and_wrong_options(tmp_path: Path):
    """Its reason for 10 s: a type checker reads the library."""
    known = [name for name in NAMES if name != "antiphon.aio"]
    lines = ["import antiphon", *(f"reveal_type({name})" for name in (*known, *WRONG))]
    program = tmp_path / "program.py"
    program.write_text("\n".join(lines) + OPTIONS)
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
    assert [error.rpartition("[")[2] for error in errors] == [
        *["attr-defined]"] * len(WRONG),
        *OF_OPTIONS,
    ]


def test_the_options_of_a_turn_are_those_of_run_and_the_fields_of_sampling():
    run = inspect.signature(aio.Conversation.run).parameters.values()
    sampling = {one.name for one in fields(antiphon.Sampling)}
    own = {one.name for one in run if one.kind is one.KEYWORD_ONLY}
    assert {*SamplingOptions.__annotations__} == sampling
    assert {*RunOptions.__annotations__} == own | sampling
