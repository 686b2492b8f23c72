"""Running mutants: each in a forked process, which imports the core with one module changed."""

import importlib.abc
import importlib.util
import inspect
import json
import os
import resource
import selectors
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, ModuleType

from antiphon.conformance.large import large_cases
from antiphon.conformance.questions import Case, cases_of, differences
from tests.mutation import host_questions
from tests.mutation.mutant import ROOT, Mutant

VECTORS = ROOT / "spec" / "vectors"

ANSWERS = ("antiphon.conformance.answers", "tests.mutation.host_answers")
NEAR = {
    "/wire": "wire", "bundle": "bundle", "/document/": "document", "/order/": "order/",
    "members": "visibility", "cuts": "visibility", "cover": "visibility", "next_seal": "order/",
    "comparison": "comparison", "auth": "proof", "drafts": "drafts", "log/": "admission",
}  # fmt: skip
"""The vector file to begin with, by a part of a module's path."""
SECONDS_MAX = 20
"""CPU time after which a mutant is stopped; it counts as killed."""
CORES = ("replica.", "model_host.", "antiphon.conformance.", "tests.support.", "tests.mutation.")
"""Modules that a mutant imports anew."""


@dataclass(frozen=True, slots=True)
class Result:
    """`killer` is the case that told the mutant from the core, None where none did."""

    mutant: Mutant
    killer: str | None
    seconds: float


class _Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives one module another source."""

    def __init__(self, mutant: Mutant) -> None:
        self._file = ROOT / mutant.path
        self._module = mutant.module
        self._source = mutant.source

    def find_spec(self, fullname: str, path: object, target: object = None) -> object:
        if fullname != self._module:
            return None
        return importlib.util.spec_from_file_location(fullname, self._file, loader=self)

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._source, str(self._file), "exec"), module.__dict__)


def _import_anew(mutant: Mutant) -> None:
    for name in [m for m in sys.modules if f"{m}.".startswith(CORES)]:
        del sys.modules[name]
    sys.meta_path.insert(0, _Changed(mutant))


def _change_in_place(mutant: Mutant) -> None:
    """Give the function of a mutant other code; whoever imported it has it then."""
    found = sys.modules[mutant.module]
    for part in mutant.function.split("."):
        found = inspect.getattr_static(found, part)
    function = found.fget if isinstance(found, property) else found
    code = _code(compile(mutant.source, mutant.path, "exec"), mutant.function)
    assert code is not None, mutant.key
    function.__code__ = code  # type: ignore[attr-defined]


def _code(outer: CodeType, name: str) -> CodeType | None:
    if outer.co_qualname == name:
        return outer
    inner = (_code(each, name) for each in outer.co_consts if isinstance(each, CodeType))
    return next((code for code in inner if code is not None), None)


def preload() -> None:
    """Import the core once, so that every fork has it."""
    for name in ("pycrdt", *ANSWERS):
        importlib.import_module(name)


def run(mutants: Iterable[Mutant], jobs: int) -> Iterator[Result]:
    """Run mutants, `jobs` at a time; results as they come."""
    preload()
    core_cases()
    host_cases()
    left, running = iter(mutants), selectors.DefaultSelector()
    while True:
        while len(running.get_map()) < jobs and (mutant := next(left, None)) is not None:
            out, into = os.pipe()
            pid = os.fork()
            if pid == 0:  # the child never returns
                _child(mutant, into)
            os.close(into)
            running.register(out, selectors.EVENT_READ, (mutant, pid, time.monotonic()))
        if not running.get_map():
            return
        for key, _ in running.select():
            running.unregister(key.fd)
            yield _result(key.fd, *key.data)


def _result(out: int, mutant: Mutant, pid: int, began: float) -> Result:
    with os.fdopen(out, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(pid, 0)
    killer = json.loads(said) if said else "no end"
    return Result(mutant, killer, time.monotonic() - began)


@cache
def core_cases() -> list[Case]:
    """Return the cases of the core, from all vector files, and those too large for one."""
    found = [case for path in sorted(VECTORS.glob("*.json")) for case in _of(path)]
    found += large_cases()
    # Logs are given in several orders; the first tells most mutants from the core.
    return sorted(found, key=lambda case: case.name[-2:] in ("-1", "-2"))


def _of(path: Path) -> list[Case]:
    return list(cases_of(path.stem, json.loads(path.read_text())))


@cache
def host_cases() -> list[Case]:
    """Return the cases of a host's pure functions."""
    return list(host_questions.cases(VECTORS))


def _child(mutant: Mutant, into: int) -> None:
    # Of CPU time, since other processes may slow this one down.
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS_MAX, SECONDS_MAX))
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123
    try:
        (_change_in_place if mutant.function else _import_anew)(mutant)
        killer = _first_killer(mutant)
    except BaseException as error:  # noqa: BLE001  # a core that cannot be imported is dead
        killer = f"import: {error!r}"
    os.write(into, json.dumps(killer).encode())
    os._exit(0)


def _nearest_first(path: str) -> list[Case]:
    near = next((file for part, file in NEAR.items() if part in path), "")
    return sorted(core_cases(), key=lambda case: not case.name.startswith(near))


def _first_killer(mutant: Mutant) -> str | None:
    of_host = mutant.path.startswith("model_host")
    answer = importlib.import_module(ANSWERS[of_host]).answer
    for case in host_cases() if of_host else _nearest_first(mutant.path):
        try:
            differs = differences(case, answer(case.question))
        except Exception as error:  # noqa: BLE001  # the core must answer whatever is asked
            return f"{case.name}: {type(error).__name__}"
        if differs:
            return case.name
    return None
