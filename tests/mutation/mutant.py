"""Mutants: one small change to one module each, generated from its syntax tree."""

import ast
import copy
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip


DEFINITIONS = (ast.FunctionDef, ast.ClassDef)

AT_IMPORT = {"shape_of"}
"""Functions that a module calls while it is imported."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One changed module; `name` tells function and change, and is unique in the module."""

    path: str
    name: str
    source: str
    function: str = ""
    """The changed function; empty where the whole module is imported anew."""

    @property
    def module(self) -> str:
        """The dotted name of the module."""
        return self.path.removesuffix(".py").replace("/", ".")

    @property
    def key(self) -> str:
        """The name with the module."""
        return f"{self.path}: {self.name}"


def by_hand(path: str, name: str, *changes: tuple[str, str]) -> Mutant:
    """Return a mutant made by replacing texts, each of which the module has once."""
    source = (ROOT / path).read_text()
    for old, new in changes:
        assert source.count(old) == 1, f"{path} has {source.count(old)} times: {old}"
        source = source.replace(old, new)
    return Mutant(path, name, source)


def generated(path: str, functions: Iterable[str]) -> Iterator[Mutant]:
    """Yield the mutants of the named functions; a method is named with its class."""
    tree = ast.parse((ROOT / path).read_text())
    wanted, named = set(functions), dict(_functions(tree))
    assert wanted <= named.keys(), f"{path} lacks {wanted - named.keys()}"
    texts = [ast.unparse(statement) for statement in tree.body]
    places = {part.name: at for at, part in enumerate(tree.body) if isinstance(part, DEFINITIONS)}
    counts: Counter[str] = Counter()
    for name in sorted(wanted):
        at = places[name.partition(".")[0]]
        for change, mutate in _changes(named[name]):
            undo = mutate()
            source = "\n".join([*texts[:at], ast.unparse(tree.body[at]), *texts[at + 1 :]])
            undo()
            label = f"{name}: {change}"
            counts[label] += 1
            number = f" ({counts[label]})" if counts[label] > 1 else ""
            yield Mutant(path, label + number, source, "" if name in AT_IMPORT else name)


def _functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            yield prefix + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{node.name}.")


def _changes(function: ast.FunctionDef) -> Iterator[tuple[str, "Change"]]:
    skipped = {
        id(inner)
        for node in ast.walk(function)
        # Texts of errors, and checks of our own bugs, are no rules.
        if isinstance(node, (ast.Raise, ast.Assert, ast.JoinedStr))
        for inner in ast.walk(node)
    }
    skipped |= {
        id(inner)
        for node in ast.walk(function)
        if isinstance(node, ast.AnnAssign)
        for inner in ast.walk(node.annotation)
    }
    for statement in function.body:
        for node in ast.walk(statement):
            if id(node) not in skipped:
                yield from _of(node)


class Change:
    """A change of one node's fields, which can be undone."""

    def __init__(self, node: ast.AST, **fields: object) -> None:
        self._node, self._fields = node, fields

    def __call__(self) -> "Change":
        """Make the change; the result undoes it."""
        before = {name: getattr(self._node, name) for name in self._fields}
        for name, value in self._fields.items():
            setattr(self._node, name, value)
        return Change(self._node, **before)


def _of(node: ast.AST) -> Iterator[tuple[str, Change]]:
    match node:
        case ast.Compare(ops=[op]) if type(op) in COMPARISONS:
            text, changed = ast.unparse(node), COMPARISONS[type(op)]()
            other = copy.copy(node)
            other.ops = [changed]
            yield f"{text} -> {ast.unparse(other)}", Change(node, ops=[changed])
        case ast.Compare(ops=ops):
            for at, op in enumerate(ops):
                if type(op) in COMPARISONS:
                    changed_ops = [*ops[:at], COMPARISONS[type(op)](), *ops[at + 1 :]]
                    yield f"{ast.unparse(node)} at {at}", Change(node, ops=changed_ops)
        case ast.BoolOp(op=op, values=values):
            text = ast.unparse(node)
            changed_op = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield f"other junction in {text}", Change(node, op=changed_op)
            if len(values) > 2:
                for at, value in enumerate(values):
                    left = [*values[:at], *values[at + 1 :]]
                    yield f"without {ast.unparse(value)} in {text}", Change(node, values=left)
        case ast.If(test=test) | ast.IfExp(test=test):
            never = ast.copy_location(ast.Constant(False), test)
            yield f"never {ast.unparse(test)}", Change(node, test=never)
        case ast.comprehension(ifs=[_, *_] as ifs):
            for at, test in enumerate(ifs):
                left = [*ifs[:at], *ifs[at + 1 :]]
                yield f"no filter {ast.unparse(test)}", Change(node, ifs=left)
        case ast.BinOp(op=op) if type(op) in ARITHMETIC:
            yield f"other sign in {ast.unparse(node)}", Change(node, op=ARITHMETIC[type(op)]())
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            double = ast.UnaryOp(ast.Not(), operand)
            yield f"without not in {ast.unparse(node)}", Change(node, operand=double)
        case _:
            pass
