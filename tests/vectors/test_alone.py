"""The makers of vectors, and the tests that compute them alone, import nothing of the project."""

import ast
from pathlib import Path

import pytest

from tests.vectors.plain import FOLDER

PROJECT = {"antiphon", "replica", "syncd", "model_host"}
HERE = Path(__file__).parent
ALONE = [HERE / "plain.py", *HERE.glob("test_*_alone.py"), *(FOLDER / "make").glob("*.py")]


@pytest.mark.parametrize("path", sorted(ALONE), ids=lambda path: path.stem)
def test_vectors_are_computed_without_the_code_they_test(path: Path) -> None:
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Import():
                names += [alias.name for alias in node.names]
            case ast.ImportFrom():
                names.append(node.module or "")
    assert PROJECT.isdisjoint(name.split(".")[0] for name in names)
    ours = [name for name in names if name.startswith("tests")]
    assert set(ours) <= {"tests.vectors.plain"}
