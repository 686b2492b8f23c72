"""Work that is done in steps of some milliseconds, between which others run (LINK-92).

Pure. A generator yields between two steps; a driver of an event loop lets other tasks
run there, and everybody else runs it to its end.
"""

from collections.abc import Generator
from typing import TypeVar

STEP_ENTRIES = 16
"""Entries decoded or admitted in one step, some 2 ms."""
JUDGED_ENTRIES = 128
"""Uncovered entries of a long message that are answered in one step, some 3 ms."""
STEP_HEADS = 512
"""Lane heads decoded or compared in one step, some 1 ms."""

_Result = TypeVar("_Result")
Steps = Generator[None, None, _Result]


def finished(steps: Steps[_Result]) -> _Result:
    """Run all steps; return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: _Result = done.value
            return result
