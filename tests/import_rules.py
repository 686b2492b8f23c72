"""Two kinds of import contract for `lint-imports`, by package: a new file is covered at once.

`offered`: what a package offers to others stands in the `__all__` of its
`__init__.py`; its other modules are imported by itself alone.
`confined`: a library, or a package of ours, is imported in named places only.
Type-checking imports are not in the graph, so neither sees them.
"""

import ast
from importlib.util import find_spec
from pathlib import Path

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class OfferedContract(Contract):
    """Modules of a package are imported from outside only where `__all__` names them.

    `packages`: those it holds for. `importers`: top packages whose imports are looked at.
    """

    type_name = "offered"

    packages = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        broken = []
        for package in map(str, self.packages):  # type: ignore[attr-defined, call-overload]
            offered = {f"{package}.{name}" for name in offers(package)}
            for imported in sorted(graph.find_descendants(package)):
                importers = graph.find_modules_that_directly_import(imported)
                outside = (m for m in importers if not _is_in(m, package))
                if imported not in offered:
                    broken += [f"{importer} imports {imported}" for importer in sorted(outside)]
        return ContractCheck(kept=not broken, metadata={"broken": broken})

    def render_broken_contract(self, check: ContractCheck) -> None:
        _print(check)


class ConfinedContract(Contract):
    """Modules are imported only by those whose dotted name has one of the `places` in it.

    `modules`: those confined, with all below them. `places`: names of packages or modules,
    with dots where more than one part is meant.
    """

    type_name = "confined"

    modules = fields.ListField(subfield=fields.StringField())
    places = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        places = [str(place) for place in self.places]  # type: ignore[attr-defined]
        broken = []
        for module in map(str, self.modules):  # type: ignore[attr-defined, call-overload]
            if module not in graph.modules:
                continue
            below = graph.find_descendants(module) if _is_ours(graph, module) else ()
            for imported in sorted({module, *below}):
                for importer in sorted(graph.find_modules_that_directly_import(imported)):
                    if not _is_in(importer, module) and not _stands_in(importer, places):
                        broken.append(f"{importer} imports {imported}")
        return ContractCheck(kept=not broken, metadata={"broken": broken})

    def render_broken_contract(self, check: ContractCheck) -> None:
        _print(check)


def offers(package: str) -> list[str]:
    """Return the names in the `__all__` of a package."""
    spec = find_spec(package)
    assert spec is not None and spec.origin is not None, f"{package} is a package"
    for node in ast.parse(Path(spec.origin).read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return names
    return []


def _is_in(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def _is_ours(graph: ImportGraph, module: str) -> bool:
    return not graph.is_module_squashed(module)


def _stands_in(module: str, places: list[str]) -> bool:
    return any(f".{place}." in f".{module}." for place in places)


def _print(check: ContractCheck) -> None:
    for line in check.metadata["broken"]:
        output.print_error(f"- {line}", bold=False)
    output.new_line()
