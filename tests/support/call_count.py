"""Work counted in calls, so that a test of how it grows needs no clock."""

import sys
from collections.abc import Callable
from types import FrameType


def calls(work: Callable[[], object]) -> int:
    """Run `work`; return how many functions, Python's and C's, it called."""
    count = 0

    def note(frame: FrameType, event: str, arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def grows_linearly(work_of: Callable[[int], Callable[[], object]], n: int) -> bool:
    """Say whether twice as much input takes about twice the calls; four times were n squared."""
    return calls(work_of(2 * n)) < 2.6 * calls(work_of(n))
