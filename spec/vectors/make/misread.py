"""Results of likely misreadings, for whoever looks for the cause of a difference."""

from collections.abc import Mapping
from typing import TypeVar

Value = TypeVar("Value", str, int)


def misread(right: Value, wrong: Mapping[str, Value]) -> dict[str, Value]:
    """Return the wrong results by misreading; each of them differs from the right one."""
    for reading, value in wrong.items():
        assert value != right, f"{reading}: this vector does not tell it from the right reading"
    return dict(wrong)
