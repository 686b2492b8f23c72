"""Descriptors that a forked child gives up (DECISIONS D453).

A lock of an open file, a listening socket and a connection last until every process that
has them open is gone. A child that its parent forked has them all: when the parent is
killed, the child would keep the store locked, and never answer.
"""

import os
import socket
from weakref import WeakSet

_FILES: set[int] = set()
_SOCKETS: "WeakSet[socket.socket]" = WeakSet()


def own_file(descriptor: int) -> int:
    """Return a descriptor that children give up, to be closed by `close_file`."""
    _FILES.add(descriptor)
    return descriptor


def close_file(descriptor: int) -> None:
    """Close a descriptor of `own_file`."""
    _FILES.discard(descriptor)
    os.close(descriptor)


def own_socket(one: socket.socket) -> socket.socket:
    """Return a socket that children give up, closed by anyone."""
    _SOCKETS.add(one)
    return one


def _give_up() -> None:
    descriptors = [*_FILES, *(one.fileno() for one in _SOCKETS)]
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for descriptor in descriptors:
        if descriptor >= 0:
            # Its number stays in use: what closes it later closes no other file.
            os.dup2(nothing, descriptor, inheritable=False)
    os.close(nothing)
    _FILES.clear()


os.register_at_fork(after_in_child=_give_up)
