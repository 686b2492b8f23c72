"""ARCHITECTURE.md and DECISIONS.md against the code and themselves: names are where they say."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "ARCHITECTURE.md").read_text()
PACKAGES = ("antiphon", "replica", "syncd", "model_host")
FILE = re.compile(r"`([\w/]+\.py)`")
PLACE = re.compile(
    r"`(\w+(?:\.\w+)?)`(?:,[^`]{0,40})?\s+(?:in|of)\s+(?:\*\*[\w/]+\*\*\s+)?" + FILE.pattern
)
"""`Class.method` or `function`, then the file that has it."""


@cache
def files_called(name: str) -> list[Path]:
    """Return the modules whose path ends so."""
    parts = tuple(name.split("/"))
    found = [path for package in PACKAGES for path in (ROOT / package).rglob(parts[-1])]
    return [path for path in found if path.parts[-len(parts) :] == parts]


@cache
def names_of(path: Path) -> set[str]:
    """Return the functions and classes of a module, and the methods with their class."""
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = set()
    for one in ast.parse(path.read_text()).body:
        if isinstance(one, kinds):
            inner = [two.name for two in ast.iter_child_nodes(one) if isinstance(two, kinds)]
            found |= {one.name, *(f"{one.name}.{name}" for name in inner)}
    return found


def test_there_are_names_to_check() -> None:
    assert len(PLACE.findall(TEXT)) > 60


@pytest.mark.parametrize("file", sorted({*FILE.findall(TEXT)}))
def test_the_files_are_there(file: str) -> None:
    assert files_called(file)


@pytest.mark.parametrize(("name", "file"), sorted({*PLACE.findall(TEXT)}))
def test_a_name_is_in_its_file(name: str, file: str) -> None:
    assert any(name in names_of(path) for path in files_called(file))


@pytest.mark.parametrize("package", PACKAGES)
def test_every_folder_of_a_package_has_a_row(package: str) -> None:
    table = "\n".join(line for line in TEXT.splitlines() if line.startswith("|"))
    listed = {name.split("/")[-1] for name in re.findall(r"`([\w/]+)/`", table)}
    levels = ("*/__init__.py", "cli/*/__init__.py", "io/*/__init__.py")
    found = {path.parent.name for level in levels for path in (ROOT / package).glob(level)}
    assert found <= listed


def test_the_decisions_name_their_groups() -> None:
    text = (ROOT / "DECISIONS.md").read_text()
    named = re.findall(r"\[([^]]+)\]\(#", text.partition("\n## ")[0])
    assert named == re.findall(r"(?m)^## (.*)$", text) != []
