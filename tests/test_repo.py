"""The repository about itself: requirements, tables, sizes, words, links, stubs, examples."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from antiphon.v1 import log_pb2
from spec import tables

ROOT = Path(__file__).parent.parent
STUBS = ROOT / "antiphon" / "v1"
PROTO = ROOT / "proto" / "antiphon" / "v1"
GENERATED = ("_pb2.py", "_pb2_grpc.py", "_pb2.pyi", "_pb2_grpc.pyi")
SKIPPED = {"build", "dist", "node_modules", "__pycache__"}
FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match)
HOST_FILE_LINES_MAX = 450
HOST_FUNCTION_LINES_MAX = 60
HOST_CLASS_METHODS_MAX = 20
HOST_NESTING_MAX = 4
REQUIREMENT = re.compile(r"\*\*([A-Z]{2,6}-\d+)\*\*")
# Put together here, so that this file does not hold them itself.
_WORDS = ("(?i:clau" + "de)", "/wo" + "rk/", r"\bTO" + r"DO\b", "FIX" + "ME", "XX" + "X")
FORBIDDEN = re.compile("|".join(_WORDS))


def _files(*endings: str) -> list[Path]:
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [
            f
            for f in folders
            if not f.startswith(".") and f not in SKIPPED and not f.endswith(".egg-info")
        ]
        found += [Path(folder) / n for n in names if n.endswith(endings)]
    return sorted(found)


def _sources() -> list[Path]:
    return [p for p in _files(".py") if not p.name.endswith(GENERATED)]


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


CHAPTERS = sorted((ROOT / "spec").glob("[0-9]*.md"))
MARKDOWN = _files(".md")

# --- requirements ------------------------------------------------------------------


def _requirements() -> dict[str, dict[str, str]]:
    return tomllib.loads((ROOT / "spec" / "requirements.toml").read_text())


def test_every_requirement_is_listed_with_its_chapter() -> None:
    stated: dict[str, str] = {}
    for chapter in CHAPTERS:
        for requirement in REQUIREMENT.findall(chapter.read_text()):
            assert requirement not in stated, f"{requirement} is stated twice"
            stated[requirement] = chapter.name
    assert {i: r["chapter"] for i, r in _requirements().items()} == stated


def _plain(text: str) -> str:
    linked = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    bare = re.sub(r"[`'\"*]", "", REQUIREMENT.sub("", linked))
    return re.sub(r"\s+", " ", bare).strip()


def test_every_requirement_is_listed_in_the_words_of_its_chapter() -> None:
    chapters = {c.name: _plain(c.read_text()) for c in CHAPTERS}
    for requirement, entry in _requirements().items():
        words = _plain(entry["text"])
        assert len(words) > 8, requirement
        assert words in chapters[entry["chapter"]], f"{requirement}: {words}"


def test_every_requirement_names_a_test_that_exists() -> None:
    tests: dict[str, set[str]] = {}
    for requirement, entry in _requirements().items():
        file, _, function = entry["test"].partition("::")
        if file not in tests:
            tree = ast.parse((ROOT / file).read_text())
            tests[file] = {n.name for n in ast.walk(tree) if isinstance(n, FUNCTIONS)}
        assert function in tests[file], f"{requirement} names {entry['test']}"
        assert function.startswith("test_")


def test_every_chapter_states_requirements() -> None:
    for chapter in CHAPTERS:
        assert REQUIREMENT.search(chapter.read_text()), chapter.name


# --- tables and errors ---------------------------------------------------------------


@pytest.mark.parametrize("name", tables.TABLES)
def test_the_tables_of_the_chapters_are_those_of_the_code(name: str) -> None:
    path, wanted = tables.chapter_with(name)
    assert path.read_text() == wanted, "run python -m spec.tables"


def test_every_error_says_what_to_do_next() -> None:
    for kind in tables.classes():
        assert re.fullmatch(r"[A-Z][A-Z0-9_]+", kind.reason), kind
        assert kind.next_step.endswith("."), kind
        assert (kind.__doc__ or "").split("\n")[0].endswith("."), kind


def test_every_limit_names_a_reason_that_exists() -> None:
    reasons = {kind.reason for kind in tables.classes()}
    assert {reason for _, _, reason in tables.MEANINGS.values() if reason} <= reasons


def test_reserved_kind_numbers_stay_free() -> None:
    assert not {9, 10, 11} & set(log_pb2.Kind.values())
    assert "reserved 9 to 11;" in (PROTO / "log.proto").read_text()


# --- sizes and words ------------------------------------------------------------------


def test_files_stay_short() -> None:
    long = {
        _name(p): n for p in _sources() if (n := len(p.read_text().splitlines())) > FILE_LINES_MAX
    }
    assert long == {}


def test_functions_stay_short() -> None:
    long = {}
    for path in _sources():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, FUNCTIONS) and (lines := _own_lines(node)) > FUNCTION_LINES_MAX:
                long[f"{_name(path)}::{node.name}"] = lines
    assert long == {}


def _own_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count lines without those of functions defined inside."""
    inner = [n for n in ast.walk(function) if isinstance(n, FUNCTIONS) and n is not function]
    nested = {line for n in inner for line in range(n.lineno, (n.end_lineno or 0) + 1)}
    return len(set(range(function.lineno, (function.end_lineno or 0) + 1)) - nested)


def _host_modules() -> list[Path]:
    return [p for p in _sources() if p.is_relative_to(ROOT / "model_host")]


def test_the_hosts_modules_stay_small() -> None:
    large = {}
    for path in _host_modules():
        text = path.read_text()
        if (lines := len(text.splitlines())) > HOST_FILE_LINES_MAX:
            large[_name(path)] = lines
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, FUNCTIONS):
                if (lines := _own_lines(node)) > HOST_FUNCTION_LINES_MAX:
                    large[f"{_name(path)}::{node.name}"] = lines
                if (depth := _nesting(node)) > HOST_NESTING_MAX:
                    large[f"{_name(path)}::{node.name} nesting"] = depth
            elif isinstance(node, ast.ClassDef):
                methods = sum(isinstance(each, FUNCTIONS) for each in node.body)
                if methods > HOST_CLASS_METHODS_MAX:
                    large[f"{_name(path)}::{node.name} methods"] = methods
    assert large == {}


def _nesting(node: ast.AST) -> int:
    """Return how deep blocks lie in one another; an elif lies no deeper than its if."""
    deepest = 0
    for child in ast.iter_child_nodes(node):
        is_elif = isinstance(node, ast.If) and node.orelse == [child] and isinstance(child, ast.If)
        deepest = max(deepest, _nesting(child) + (isinstance(child, BLOCKS) and not is_elif))
    return deepest


def test_every_pure_module_of_the_host_has_its_test_file() -> None:
    missing = []
    for path in _host_modules():
        inside = path.relative_to(ROOT / "model_host")
        if inside.name.startswith("__") or inside.parts[0] in ("io", "engine"):
            continue
        test = ROOT / "tests" / "model_host" / inside.parent / f"test_{inside.name}"
        missing += [] if test.exists() else [str(inside)]
    assert missing == []


def test_no_forbidden_words() -> None:
    endings = (".py", ".md", ".toml", ".proto", ".yaml", ".yml", ".txt", ".cfg")
    named = [ROOT / "Makefile", *_files(*endings)]
    found = {_name(p): m[0] for p in named if (m := FORBIDDEN.search(p.read_text()))}
    assert found == {}


# --- rules ---------------------------------------------------------------------------

DOUBLES = {
    "tests/simulation/host_node.py": ("model_host.schedule", {"open_requests", "sealable"}),
    "tests/simulation/hub_node.py": ("syncd.hub", {"FanOut", "Link", "permitted"}),
    "tests/simulation/node.py": ("replica.commits", {"Refused"}),
    "tests/simulation/replica_node.py": ("replica.core", {"Acks", "Channel", "Epochs", "Link"}),
    "tests/simulation/writer.py": ("replica.conversation.author", {"Epochs", "Header", "sign"}),
    "tests/support/scripted_host.py": ("model_host.schedule", {"open_requests", "sealable"}),
}
"""Per test double: the module whose rules it follows, and the names it leaves to that module."""


@pytest.mark.parametrize("double", DOUBLES)
def test_doubles_use_the_rules_of_the_core(double: str) -> None:
    """A copy of a rule drifts, and a test of the copy proves nothing."""
    core, left_to_it = DOUBLES[double]
    imports = [
        n for n in ast.walk(ast.parse((ROOT / double).read_text())) if isinstance(n, ast.ImportFrom)
    ]
    assert core in {node.module for node in imports}
    assert not left_to_it & {alias.name for node in imports for alias in node.names}


# --- documents ---------------------------------------------------------------------------


@pytest.mark.parametrize("path", MARKDOWN, ids=_name)
def test_every_relative_link_resolves(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:|#", target):
            continue
        assert (path.parent / target.partition("#")[0]).exists(), target


EXAMPLES = [
    pytest.param(code, id=f"{path.name} example {number}")
    for path in CHAPTERS
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL))
]


@pytest.mark.parametrize("code", EXAMPLES)
def test_the_examples_of_a_chapter_run_and_hold(code: str) -> None:
    statements = ast.walk(ast.parse(code))
    assert any(isinstance(node, ast.Assert) for node in statements), "an example claims something"
    exec(compile(code, "example", "exec"), {})


# --- generated stubs ------------------------------------------------------------------------


def test_the_stubs_are_what_the_protocol_files_yield(tmp_path: Path) -> None:
    proto = ROOT / "proto"
    scripts = Path(sys.executable).parent
    outputs = [
        f"--{kind}_out={prefix}{tmp_path}"
        for kind, prefix in (
            ("python", ""),
            ("grpc_python", ""),
            ("mypy", "quiet:"),
            ("mypy_grpc", "quiet:"),
        )
    ]
    plugins = [
        f"--plugin=protoc-gen-{name}={scripts}/protoc-gen-{name}" for name in ("mypy", "mypy_grpc")
    ]
    files = sorted(p.relative_to(proto) for p in PROTO.glob("*.proto"))
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", *outputs, *plugins]
    subprocess.run([*command, *map(str, files)], cwd=proto, check=True, timeout=60)
    fresh = tmp_path / "antiphon" / "v1"
    for file in files:
        if not re.search(r"^service ", (proto / file).read_text(), re.MULTILINE):
            for stub in fresh.glob(f"{file.stem}_pb2_grpc.*"):
                stub.unlink()
    committed = {p.name: p.read_bytes() for p in STUBS.iterdir() if p.name.endswith(GENERATED)}
    assert {p.name: p.read_bytes() for p in fresh.iterdir()} == committed, "run make gen"
