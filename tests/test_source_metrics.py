"""Each size is measured, and reported from one beyond its bar on."""

import pytest

from tests.source_metrics import (
    CLASS_METHODS_MAX,
    FILE_LINES_MAX,
    FUNCTION_LINES_MAX,
    NESTING_MAX,
    sizes_beyond,
)


def function(lines: int, *, head: str = "def f():") -> str:
    return "\n".join([head, *["    x = 1"] * (lines - 1)])


def nested(depth: int, head: str) -> str:
    """Return a function with so many blocks in each other, each begun by `head`."""
    lines = ["def f():"]
    lines += ["    " * (level + 1) + head for level in range(depth)]
    return "\n".join([*lines, "    " * (depth + 1) + "x = 1"])


def a_class(methods: int) -> str:
    kinds = ("def", "async def")
    body = [f"    {kinds[n % 2]} f{n}(self): ..." for n in range(methods)]
    return "\n".join(["class C:", *body])


def test_a_file_may_have_450_lines() -> None:
    assert sizes_beyond("x = 1\n" * FILE_LINES_MAX) == {}
    assert sizes_beyond("x = 1\n" * (FILE_LINES_MAX + 1)) == {"lines": FILE_LINES_MAX + 1}


@pytest.mark.parametrize("head", ["def f():", "async def f():"])
def test_a_function_may_have_60_lines(head: str) -> None:
    assert sizes_beyond(function(FUNCTION_LINES_MAX, head=head)) == {}
    longer = function(FUNCTION_LINES_MAX + 1, head=head)
    assert sizes_beyond(longer) == {"f lines": FUNCTION_LINES_MAX + 1}


def test_functions_inside_a_function_count_with_it() -> None:
    inner = function(FUNCTION_LINES_MAX, head="def inner():").replace("\n", "\n    ")
    assert sizes_beyond("def outer():\n    " + inner) == {"outer lines": FUNCTION_LINES_MAX + 1}


@pytest.mark.parametrize("head", ["if x:", "for x in y:", "while x:", "with x:"])
def test_blocks_may_lie_four_deep(head: str) -> None:
    assert sizes_beyond(nested(NESTING_MAX, head)) == {}
    assert sizes_beyond(nested(NESTING_MAX + 1, head)) == {"f nesting": NESTING_MAX + 1}


def test_try_and_match_are_blocks_too() -> None:
    for block in (
        "try:\n            x = 1\n        except* E:\n            x = 2",
        "try:\n            x = 1\n        finally:\n            x = 2",
        "match x:\n            case 1:\n                x = 2",
    ):
        deep = nested(NESTING_MAX, "if x:")
        indented = ("        " + block).replace("\n", "\n" + "    " * (NESTING_MAX - 1))
        found = sizes_beyond(deep + "\n" + "    " * (NESTING_MAX - 1) + indented)
        assert found == {"f nesting": NESTING_MAX + 1}, block


def test_an_elif_lies_no_deeper_than_its_if_and_an_else_with_an_if_does_not_either() -> None:
    arms = ["def f():", "    if x == 0:", "        y = 0"]
    for number in range(NESTING_MAX + 3):
        arms += [f"    elif x == {number}:", f"        y = {number}"]
    assert sizes_beyond("\n".join(arms)) == {}


def test_a_class_may_have_20_methods() -> None:
    assert sizes_beyond(a_class(CLASS_METHODS_MAX)) == {}
    assert sizes_beyond(a_class(CLASS_METHODS_MAX + 1)) == {"C methods": CLASS_METHODS_MAX + 1}


def test_functions_of_an_inner_class_are_its_own() -> None:
    inner = a_class(CLASS_METHODS_MAX).replace("\n", "\n    ").replace("class C", "class Inner")
    outer = a_class(CLASS_METHODS_MAX) + "\n    " + inner
    assert sizes_beyond(outer) == {}
