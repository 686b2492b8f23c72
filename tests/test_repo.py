"""The repository about itself: requirements, tables, sizes, references, links, stubs, examples."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from antiphon.v1 import log_pb2
from spec import limit_meanings, tables
from tests.import_rules import offers
from tests.references import Targets, decisions_of, sections_of
from tests.source_metrics import sizes_beyond, statements

ROOT = Path(__file__).parent.parent
STUBS = ROOT / "antiphon" / "v1"
PROTO = ROOT / "proto" / "antiphon" / "v1"
GENERATED = ("_pb2.py", "_pb2_grpc.py", "_pb2.pyi", "_pb2_grpc.pyi")
PACKAGES = ("antiphon", "replica", "syncd", "model_host")
DRIVERS = {"io", "cli", "daemons", "engine", "v1"}
"""Folders of modules that meet a clock, a disk, a network or a tensor, and generated ones."""
FLAT_FILES_MAX = {
    "replica": 8,
    "replica/io": 2,
    "antiphon/cli": 6,
    "syncd": 9,
    "model_host": 10,
    "model_host/io": 7,
}
"""Modules beside the packages of a package."""
SKIPPED = {"build", "dist", "node_modules", "__pycache__"}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
REQUIREMENT = re.compile(r"\*\*([A-Z]{2,6}-\d+)\*\*")


def _files(*endings: str, under: Path = ROOT) -> list[Path]:
    found = []
    for folder, folders, names in os.walk(under):
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


@dataclass(frozen=True)
class Source:
    """What the tests of this file ask of a module; its tree is a hundred times as large."""

    imported: dict[str, set[str]]
    """The names imported from each module."""
    modules: set[str]
    """The modules imported by either form of import, as they are written."""
    functions: set[str]
    beyond: dict[str, int]
    """The sizes that exceed their bar."""


SourceOf = Callable[[Path], Source]


@pytest.fixture(scope="module")
def source_of() -> SourceOf:
    """Return a module's source, which is parsed once for all tests: of all modules it is 1.5 s."""
    return cache(_source)


def _source(path: Path) -> Source:
    text = path.read_text()
    tree = ast.parse(text)
    imported: dict[str, set[str]] = {}
    plain, functions = set[str](), set[str]()
    for node in statements(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            imported.setdefault(node.module, set()).update(alias.name for alias in node.names)
        elif isinstance(node, ast.Import):
            plain |= {alias.name for alias in node.names}
        elif isinstance(node, FUNCTIONS):
            functions.add(node.name)
    return Source(imported, plain | imported.keys(), functions, sizes_beyond(text, tree))


REASONS = ROOT / "tests" / "reasons.txt"
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


def test_every_requirement_names_a_test_that_exists(source_of: SourceOf) -> None:
    for requirement, entry in _requirements().items():
        file, _, function = entry["test"].partition("::")
        named = f"{requirement} names {entry['test']}"
        assert function in source_of(ROOT / file).functions, named
        assert function.startswith("test_")


def test_every_chapter_states_requirements() -> None:
    for chapter in CHAPTERS:
        assert REQUIREMENT.search(chapter.read_text()), chapter.name


WORDS_MAX = 16_000
"""Words of the whole specification."""
LEVEL_1_WORDS_MAX = 1_500
"""Words of the chapter that a level-1 client is written from."""
GENERATED_TABLE = re.compile(r"<!-- table: \w+ -->\n.*?<!-- end -->", re.DOTALL)


def _words(chapter: Path) -> int:
    """Count the words of a chapter.

    All of its text counts, examples and tables too, but for tables that spec.tables writes. A word
    is whatever stands between white space and has two letters in a row, so that numbers, operators
    and the bars of tables are none.
    """
    text = GENERATED_TABLE.sub("", chapter.read_text())
    return sum(1 for word in text.split() if re.search(r"[^\W\d_]{2}", word))


def test_the_specification_stays_small() -> None:
    """Chapters 00 to 13 and the appendix count; CHANGELOG.md is history."""
    words = {c.name: _words(c) for c in (*CHAPTERS, ROOT / "spec" / "conform-core.md")}
    assert sum(words.values()) <= WORDS_MAX, words
    assert len((ROOT / "spec" / "13-level-1.md").read_text().split()) <= LEVEL_1_WORDS_MAX


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


def test_a_tree_of_errors_names_all_of_its_module() -> None:
    trees = 0
    for path in _files("errors.py", "refusals.py"):
        tree = ast.parse(path.read_text())
        drawn = ast.get_docstring(tree) or ""
        if "├──" in drawn:
            trees += 1
            classes = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
            assert classes <= {*re.findall(r"\w+", drawn)}, _name(path)
    assert trees > 3


def test_every_limit_names_a_reason_that_exists() -> None:
    reasons = {kind.reason for kind in tables.classes()}
    assert {reason for _, _, reason in limit_meanings.MEANINGS.values() if reason} <= reasons


def test_every_limit_is_applied_by_some_module() -> None:
    sources = [p.read_text() for p in _sources() if p.parts[len(ROOT.parts)] in PACKAGES]
    applied = {name for text in sources for name in re.findall(r"\b[A-Z][A-Z_]+\b(?! =)", text)}
    assert limit_meanings.MEANINGS.keys() <= applied


def test_reasons_keep_their_retry_and_status_and_none_comes_back() -> None:
    """reasons.txt has the reasons of this draft; a withdrawn one is marked there for ever."""
    rows = {row.split()[0]: row.split()[1:] for row in REASONS.read_text().splitlines()}
    now = {
        cells[0]: cells[3:]
        for row in tables.errors().splitlines()[2:]
        for cells in [[cell.strip() for cell in row.strip("|").split("|")]]
    }
    for reason, known in rows.items():
        if known == ["withdrawn"]:
            assert reason not in now, f"{reason} was withdrawn"
        else:
            assert now.get(reason) == known, reason


def test_reserved_kind_numbers_stay_free() -> None:
    assert not {10, 11} & set(log_pb2.Kind.values())
    assert "reserved 10, 11;" in (PROTO / "log.proto").read_text()


# --- sizes and places ----------------------------------------------------------------


def test_modules_functions_and_classes_stay_small(source_of: SourceOf) -> None:
    beyond = {
        f"{_name(path)}: {size}": number
        for path in _sources()
        for size, number in source_of(path).beyond.items()
    }
    assert beyond == {}


@pytest.mark.parametrize("package", FLAT_FILES_MAX)
def test_a_package_of_packages_holds_few_modules_of_its_own(package: str) -> None:
    flat = [p.name for p in (ROOT / package).glob("*.py")]
    assert len(flat) <= FLAT_FILES_MAX[package], flat


def test_every_pure_module_has_a_test_file_of_its_name() -> None:
    missing = []
    for package in PACKAGES:
        for path in _files(".py", under=ROOT / package):
            inside = path.relative_to(ROOT)
            if path.name.startswith("__") or DRIVERS & {*inside.parts}:
                continue
            test = ROOT / "tests" / inside.parent / f"test_{path.name}"
            missing += [] if test.exists() else [str(inside)]
    assert missing == []


# --- rules ---------------------------------------------------------------------------

CORES = {
    "model_host.scheduling": {"may_be_sealed", "open_requests", "sealable"},
    "replica.commits": {"Refused"},
    "replica.conversation.author": {"Epochs", "Header", "sign"},
    "replica.core": {"Acks", "CurrentLink", "Epochs", "Follows", "Link", "Pauses", "acked_by"},
    "syncd.hub": {"Connected", "FanOut", "Link", "permitted", "queries"},
}
"""Per core: the names of the rules that its test doubles leave to it."""
DOUBLES = {
    "tests/simulation/host_node.py": "model_host.scheduling",
    "tests/simulation/hub_node.py": "syncd.hub",
    "tests/simulation/node.py": "replica.commits",
    "tests/simulation/replica_node.py": "replica.core",
    "tests/simulation/writer.py": "replica.conversation.author",
    "tests/support/scripted_host.py": "model_host.scheduling",
}
"""Test doubles of drivers, and the core that each of them drives."""


def test_doubles_use_the_rules_of_the_core(source_of: SourceOf) -> None:
    """A copy of a rule drifts, and a test of the copy proves nothing."""
    for folder in ("simulation", "support"):
        for path in _files(".py", under=ROOT / "tests" / folder):
            if "planted" in path.parts:  # bugs are planted in the cores themselves
                continue
            imported = source_of(path).imported
            driven = CORES.keys() & imported.keys()
            names = {name for named in imported.values() for name in named}
            left_to_them = {name for core in driven for name in CORES[core]}
            assert not names & left_to_them, _name(path)
    for double, core in DOUBLES.items():
        assert core in source_of(ROOT / double).imported, f"{double} does not drive {core}"


BESIDE = ("bench", "tests")
"""Top packages that are no part of the program: tests may import both, bench itself."""


def test_nothing_imports_the_tests_and_only_they_import_the_benchmarks(
    source_of: SourceOf,
) -> None:
    for path in _sources():
        importer = path.relative_to(ROOT).parts[0]
        forbidden = {*BESIDE} - {"bench": {"bench"}, "tests": {*BESIDE}}.get(importer, set())
        packages = {name.split(".")[0] for name in source_of(path).modules}
        assert not packages & forbidden, _name(path)


def test_every_name_that_a_package_offers_has_a_user_outside_it(source_of: SourceOf) -> None:
    """Tests are none: they import the module that they test."""
    rules = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (packages,) = (c["packages"] for c in rules["contracts"] if c["type"] == "offered")
    users = [p for p in _sources() if p.relative_to(ROOT).parts[0] != "tests"]
    imports = {
        ".".join(p.relative_to(ROOT).with_suffix("").parts): source_of(p).imported for p in users
    }
    for package in packages:
        used = set[str]()
        for user, imported in imports.items():
            if not user.startswith(f"{package}."):
                used |= imported.get(package, set())
                below = (m for m in imported if m.startswith(f"{package}."))
                used |= {module.removeprefix(f"{package}.").split(".")[0] for module in below}
        assert {*offers(package)} <= used, package


CLOCKS = {"time", "datetime"}
PURE = ("replica", "syncd", "model_host")


def test_pure_modules_read_no_clock(source_of: SourceOf) -> None:
    """Times come from callers, which use them for leases, tickets and time-outs (CONV-3)."""
    for package in PURE:
        for path in _files(".py", under=ROOT / package):
            if DRIVERS & {*path.relative_to(ROOT).parts}:
                continue
            assert not source_of(path).modules & CLOCKS, _name(path)


def test_no_verdict_reads_the_time_that_an_author_states() -> None:
    """Codecs carry it, and no rule of admission, membership, order or the document has it."""
    readers = {
        _name(path)
        for folder in ("log", "order", "document", "link")
        for path in _files(".py", under=ROOT / "replica" / folder)
        if "create_time_ms" in path.read_text()
    }
    assert readers == {"replica/log/entry.py", "replica/log/codec/entries.py"}


# --- documents ---------------------------------------------------------------------------


@pytest.mark.parametrize("path", MARKDOWN, ids=_name)
def test_every_relative_link_resolves(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:|#", target):
            continue
        assert (path.parent / target.partition("#")[0]).exists(), target


TARGETS = Targets(
    {chapter.stem: sections_of(chapter.read_text()) for chapter in CHAPTERS},
    _requirements().keys(),
    decisions_of((ROOT / "DECISIONS.md").read_text()),
)


def test_every_decision_has_its_parts_once() -> None:
    sections = re.split(r"(?m)^### ", (ROOT / "DECISIONS.md").read_text())[1:]
    numbers = [section.split(maxsplit=1)[0] for section in sections]
    assert len(numbers) == len({*numbers}), "numbers are not used again"
    torn = []
    for section in sections:
        heading, _, text = section.partition("\n")
        words = re.findall(r"\*\*(Context|Decision|Consequence)\*\*", text)
        paragraphs = [p for p in re.split(r"\n\n+", text.strip()) if not p.startswith("## ")]
        if words not in (["Context", "Decision"], ["Context", "Decision", "Consequence"]):
            torn.append(heading)
        elif len(paragraphs) > 1:
            torn.append(f"{heading}: paragraphs")
    assert torn == []


SAMPLES = {"tests/references.py", "tests/test_references.py"}
"""They hold references that name nothing, to show what is checked."""


def test_every_reference_names_something_that_exists() -> None:
    """A chapter or a section of one, a requirement, or a decision."""
    broken = {}
    for path in _files(".py", ".md", ".proto"):
        if path.name.endswith(GENERATED) or _name(path) in SAMPLES:
            continue
        within = path.stem if path in CHAPTERS else None
        if wrong := TARGETS.broken(path.read_text(), within=within):
            broken[_name(path)] = wrong
    assert broken == {}


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
