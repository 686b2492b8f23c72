"""Each module is compiled by one worker of pytest-xdist, where all workers would compile it.

In a fresh checkout that is half of a collection's time: pytest rewrites the assertions of each test
file. A worker compiles its share first; what another has not compiled by then it compiles itself.
"""

import importlib.util
import py_compile
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from _pytest.assertion import rewrite


def compile_share(
    config: pytest.Config, number: int, workers: int, folders: Sequence[Path]
) -> None:
    """Compile a worker's share of the modules in these folders, but for those that are."""
    if sys.dont_write_bytecode:
        return
    paths = sorted(path for folder in folders for path in folder.rglob("*.py"))
    share = slice(len(paths) * number // workers, len(paths) * (number + 1) // workers)
    for path in paths[share]:
        if not _is_compiled(path):
            _compile(path, config)


def is_rewritten(path: Path) -> bool:
    """Say whether pytest rewrites the assertions of a module."""
    return path.name == "conftest.py" or path.name.startswith("test_")


def compiled(path: Path) -> Path:
    """Return the file of a module's code."""
    if is_rewritten(path):
        return rewrite.get_cache_dir(path) / (path.stem + rewrite.PYC_TAIL)
    return Path(importlib.util.cache_from_source(path))


def _is_compiled(path: Path) -> bool:
    """Say whether a module's code is of the file as it is; both kinds of code begin alike."""
    try:
        with compiled(path).open("rb") as file:
            begin = file.read(16)
    except OSError:
        return False
    now = path.stat()
    stamps = (int(now.st_mtime), now.st_size)
    known = b"".join((stamp & 0xFFFFFFFF).to_bytes(4, "little") for stamp in stamps)
    return begin == importlib.util.MAGIC_NUMBER + bytes(4) + known


def _compile(path: Path, config: pytest.Config) -> None:
    """Compile a module; one that cannot be is left to its import, which tells why."""
    try:
        if not is_rewritten(path):
            py_compile.compile(str(path), doraise=True)
            return
        stat, code = rewrite._rewrite_test(path, config)
    except (SyntaxError, py_compile.PyCompileError):
        return
    if rewrite.try_makedirs(compiled(path).parent):
        rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, stat, compiled(path))
