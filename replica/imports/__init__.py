"""Imports at the start of a program, without garbage collections."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Import modules without collections, and exempt them from later ones and from those at exit.

    Modules last as long as the process: scanning half a million of their objects again and again
    costs a third of a short command's time. For programs: what exists at the end of the block is
    never collected. Where collection is off already nothing changes.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
