"""The Python examples of README.md and of each page of docs/ run as they stand, in their order."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from replica.log.body import ToolCall
from tests.antiphon.cli.conftest import World, world
from tests.support.scripted_host import Asked, Token, words

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
PAGES = [
    page
    for page in sorted((ROOT / "docs").glob("*.md"))
    # The commands of sharing.md are played by tests/antiphon/cli/test_docs_sharing.py.
    if BLOCK.search(page.read_text()) and page.stem != "sharing"
]
__all__ = ["world"]
TYPED = '''
"""A tool has the types of its function, and stands among tools of any."""

from typing import assert_type

import antiphon


@antiphon.tool
def weather(city: str) -> str:
    """Say how the weather is in a city."""
    return f"sunny in {city}"


@antiphon.tool(effect=True)
async def book(city: str, nights: int = 1) -> bool:
    """Book nights in a city."""
    return bool(city and nights)


async def use(trip: antiphon.Conversation, others: list[antiphon.Tool]) -> antiphon.Run:
    assert_type(weather("Rome"), str)
    assert_type(await book("Rome", nights=2), bool)
    weather(3)  # type: ignore[arg-type]
    return trip.run("Book in Rome.", tools=[weather, book, *others])
'''


def travel(asked: Asked) -> list[Token | ToolCall]:
    """Book what is asked for, and look the weather up."""
    if asked.said.startswith("Book"):
        return [ToolCall("1", "book", '{"city": "Paris", "nights": 2}')]
    if asked.said.startswith("How is the weather"):
        return [ToolCall("1", "weather", '{"city": "Rome"}')]
    return list(words(f"Heard: {asked.said}"))


def travel_without_end(asked: Asked) -> list[Token | ToolCall]:
    """Book again behind each booking, as a small model may."""
    if asked.said.startswith("booked"):
        return [ToolCall(asked.request_id.hex()[:8], "book", '{"city": "Paris", "nights": 2}')]
    return travel(asked)


@pytest.fixture
def travelling(world: World) -> World:
    """A hub whose host calls the tools of the examples."""
    world.stop_host()
    world.start_host(travel)
    return world


def run(page: Path, world: World) -> None:
    """Run the examples of a page, with folders and an address of this test."""
    for code in BLOCK.findall(page.read_text()):
        here = code.replace("~/agent", str(world.folder / "agent"))
        exec(compile(here.replace("127.0.0.1:7411", world.address), page.name, "exec"), {})


def test_the_example_of_the_readme_runs(travelling: World, capsys: pytest.CaptureFixture[str]):
    run(ROOT / "README.md", travelling)
    printed = capsys.readouterr().out
    assert "Heard: Capital of France?" in printed
    assert "booked 2 nights in Paris" in printed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_examples_of_a_page_run(
    page: Path, travelling: World, capsys: pytest.CaptureFixture[str]
):
    run(page, travelling)
    printed = capsys.readouterr().out
    expected = {
        "agents": "sunny in Rome", "branches": "2", "errors": "NO_HOST - ",
        "index": "Heard: Capital of France?", "offline": "To be asked about later.",
        "start": "Heard: And of Italy?",
    }  # fmt: skip
    assert expected[page.stem] in printed


@pytest.mark.parametrize("page", ["README.md", "docs/agents.md"])
def test_an_example_that_books_ends_beside_a_model_that_calls_without_end(
    page: str, travelling: World, capsys: pytest.CaptureFixture[str]
):
    travelling.stop_host()
    travelling.start_host(travel_without_end)
    run(ROOT / page, travelling)
    assert (
        "the run has made 1 of 1 calls, and the model calls 'book' again" in capsys.readouterr().out
    )


def test_the_examples_have_types(tmp_path: Path):
    """As strictly as the packages are checked, since programs that copy them may be."""
    for page in (ROOT / "README.md", *PAGES):
        for number, code in enumerate(BLOCK.findall(page.read_text())):
            (tmp_path / f"{page.stem.lower()}_{number}.py").write_text(code)
    (tmp_path / "typed.py").write_text(TYPED)
    command = [sys.executable, "-m", "mypy", *map(str, sorted(tmp_path.glob("*.py")))]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
