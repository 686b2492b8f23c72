"""The modules of a run are compiled by one worker each."""

import os
import time
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

from tests.support import compiled

MODULES = ("a/helper.py", "a/test_one.py", "b/conftest.py", "b/test_two.py", "b/wrong.py")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    for name in MODULES:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("assert (" if name == "b/wrong.py" else "assert 1 + 1 == 2\n")
    return tmp_path


def compile_as(config: pytest.Config, number: int, workers: int, folder: Path) -> set[str]:
    """Compile as one of some workers; return the modules of which there is code then."""
    compiled.compile_share(config, number, workers, [folder])
    return {name for name in MODULES if compiled.compiled(folder / name).exists()}


def test_each_module_is_compiled_by_one_worker(pytestconfig: pytest.Config, folder: Path) -> None:
    assert compile_as(pytestconfig, 0, 2, folder) == {*MODULES[:2]}
    assert compile_as(pytestconfig, 1, 2, folder) == {*MODULES[:4]}, "wrong.py is no module"


def test_pytest_reads_what_a_worker_compiled(pytestconfig: pytest.Config, folder: Path) -> None:
    compile_as(pytestconfig, 0, 1, folder)
    for name in MODULES[1:4]:
        code = rewrite._read_pyc(folder / name, compiled.compiled(folder / name))
        assert code is not None
        assert "@pytest_ar" in code.co_names, "its assertions say what they compared"


@pytest.mark.parametrize("name", MODULES[:2])
def test_a_module_is_compiled_again_once_it_changed(
    pytestconfig: pytest.Config, folder: Path, name: str
) -> None:
    compile_as(pytestconfig, 0, 1, folder)
    path, code = folder / name, compiled.compiled(folder / name)
    first = code.read_bytes()
    os.utime(code, (0, 0))
    compile_as(pytestconfig, 0, 1, folder)
    assert code.stat().st_mtime == 0, "it is left as it is"
    path.write_text("assert 2 + 3 == 5\n")
    os.utime(path, (time.time() + 10, time.time() + 10))
    compile_as(pytestconfig, 0, 1, folder)
    assert code.read_bytes() != first


def test_nothing_is_compiled_where_no_code_is_kept(
    pytestconfig: pytest.Config, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    assert compile_as(pytestconfig, 0, 1, folder) == set()
