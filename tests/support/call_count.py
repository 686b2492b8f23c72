"""Work counted in function calls, so that tests of its growth need no clock."""

import gc
import sys
from collections.abc import Callable
from types import FrameType


def calls(work: Callable[[], object]) -> int:
    """Run `work`; return the number of calls of Python and C functions.

    The garbage collector waits meanwhile: finalizers of earlier tests are no calls of `work`.
    """
    count = 0

    def note(frame: FrameType, event: str, arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    gc.disable()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


def grows_linearly(work_of: Callable[[int], Callable[[], object]], n: int) -> bool:
    """Say whether twice the input needs about twice the calls; n squared would need four times."""
    return calls(work_of(2 * n)) < 2.6 * calls(work_of(n))
