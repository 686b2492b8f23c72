"""Print each requirement with its test and the cases of the kit that show it.

`python -m spec.coverage`, which `make spec-coverage` runs. Cases are those of the vectors
and random logs (core) and of the black-box suites. A requirement without any says why
where `requirements.toml` has the field `unseen`.
"""

import importlib
import pkgutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from antiphon.conformance import io
from antiphon.conformance.cases import Table
from antiphon.conformance.io import core_cases
from antiphon.conformance.report import requirement_order

FILE = Path(__file__).parent / "requirements.toml"
TEXT_WIDTH = 64
NOT_VISIBLE = "not visible from outside"


def requirements() -> dict[str, dict[str, str]]:
    """Return the requirements by id."""
    return tomllib.loads(FILE.read_text())


def shown() -> dict[str, dict[str, list[str]]]:
    """Return per requirement id and suite the names of the cases that show it."""
    found: dict[str, dict[str, list[str]]] = {}
    for suite, name, ids in _cases():
        for requirement in ids:
            found.setdefault(requirement, {}).setdefault(suite, []).append(name)
    return found


def _cases() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    for case in core_cases(logs=1):
        yield "core", case.name, case.requirements
    for suite, table in _suites():
        for check in table:
            yield suite, check.name, check.requirements


def _suites() -> Iterator[tuple[str, Table[Any]]]:
    """Yield the tables of the black-box suites: a package each, named after what it checks."""
    for module in pkgutil.iter_modules(io.__path__):
        if module.ispkg:
            package = importlib.import_module(f"{io.__name__}.{module.name}")
            for value in vars(package).values():
                if isinstance(value, Table):
                    yield module.name, value


def table() -> Iterator[str]:
    """Yield the lines of the table: id, text, test, and cases or the reason for none."""
    cases = shown()
    found = requirements()
    for requirement in sorted(found, key=requirement_order):
        entry = found[requirement]
        text = entry["text"]
        cut = text if len(text) <= TEXT_WIDTH else f"{text[: TEXT_WIDTH - 1]}…"
        suites = (
            f"{suite} {names[0]}" + (f" and {len(names) - 1} more" if len(names) > 1 else "")
            for suite, names in cases.get(requirement, {}).items()
        )
        reason = f"{NOT_VISIBLE}: {entry['unseen']}" if "unseen" in entry else "-"
        test = entry["test"].removeprefix("tests/")
        yield f"{requirement:10}{cut:{TEXT_WIDTH}}  {test:90}  {'; '.join(suites) or reason}"


def main() -> None:
    """Print the table, and how many requirements have cases."""
    lines = list(table())
    found, cases = requirements(), shown()
    unseen = sum("unseen" in entry and i not in cases for i, entry in found.items())
    with_cases = sum(i in cases for i in found)
    counts = (
        f"{len(found)} requirements, {with_cases} with cases of the kit, {unseen} {NOT_VISIBLE}"
    )
    sys.stdout.write("\n".join([*lines, counts, ""]))


if __name__ == "__main__":
    main()
