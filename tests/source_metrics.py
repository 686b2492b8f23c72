"""The sizes of a Python module, and the bars that every module of the repository keeps.

The sizes are those a reader meets: lines of the file and of each function, with
what is defined inside it; blocks inside each other; methods of each class.
"""

import ast
from collections.abc import Iterator

FILE_LINES_MAX = 450
FUNCTION_LINES_MAX = 60
NESTING_MAX = 4
CLASS_METHODS_MAX = 20

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_BLOCKS = (
    ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar,
    ast.Match,
)  # fmt: skip
_PARTS = ("body", "handlers", "orelse", "finalbody", "cases")
"""Fields of a module or statement that hold others."""


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a module or statement and all statements, handlers and cases inside it.

    No expression holds one of them, and most nodes of a module belong to expressions.
    """
    yield node
    for inner in _inside(node):
        yield from statements(inner)


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements, handlers and cases right inside a module or statement."""
    for part in _PARTS:
        yield from getattr(node, part, ())


def sizes_beyond(source: str, tree: ast.Module | None = None) -> dict[str, int]:
    """Return the sizes of a module's text that exceed their bar, by what they measure.

    `tree` is what the text was parsed to, if it was.
    """
    parsed = tree if tree is not None else ast.parse(source)
    return {name: size for name, size, bar in _sizes(source, parsed) if size > bar}


def _sizes(source: str, tree: ast.Module) -> Iterator[tuple[str, int, int]]:
    """Yield the name of each size, the size, and its bar."""
    yield "lines", len(source.splitlines()), FILE_LINES_MAX
    for node in statements(tree):
        if isinstance(node, _FUNCTIONS):
            yield f"{node.name} lines", _lines(node), FUNCTION_LINES_MAX
            yield f"{node.name} nesting", _nesting(node), NESTING_MAX
        elif isinstance(node, ast.ClassDef):
            methods = sum(isinstance(member, _FUNCTIONS) for member in node.body)
            yield f"{node.name} methods", methods, CLASS_METHODS_MAX


def _lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    assert function.end_lineno is not None, "parsed from a text"
    return function.end_lineno - function.lineno + 1


def _nesting(node: ast.AST) -> int:
    """Return how deep blocks lie in one another; an elif lies no deeper than its if."""
    deepest = 0
    for child in _inside(node):
        is_elif = isinstance(node, ast.If) and node.orelse == [child] and isinstance(child, ast.If)
        deepest = max(deepest, _nesting(child) + (isinstance(child, _BLOCKS) and not is_elif))
    return deepest
