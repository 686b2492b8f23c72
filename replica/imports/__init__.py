"""Imports at the start of a program, without garbage collections."""

import gc
import os
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


def without_grpc_lines() -> None:
    """Keep gRPC's core from writing to stderr itself, unless the environment wants its lines.

    Peers cause them with calls and handshakes that are wrong, and they are no events of the log.
    Call it before grpc is imported.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
