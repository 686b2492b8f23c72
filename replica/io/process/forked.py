"""What a forked child gives up (DECISIONS D453): descriptors of its parent, and gRPC.

A lock of an open file, a listening socket and a connection last until every process that
has them open is gone. A child that its parent forked has them all: when the parent is
killed, the child would keep the store locked, and never answer. gRPC works in no child of a
process that has used it: calls are never answered.
"""

import os
import socket
from weakref import WeakSet

# With its own handlers of fork, gRPC ends one of five children that only compute by SIGSEGV. It
# reads this when it is first imported, which modules of this package do later (DECISIONS D539).
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

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


class _Grpc:
    is_used = False
    is_lost = False


def note_grpc() -> None:
    """Note that this process uses gRPC."""
    _Grpc.is_used = True


def uses_grpc() -> bool:
    """Say whether this process has used gRPC, which works here."""
    return _Grpc.is_used and not _Grpc.is_lost


def has_lost_grpc() -> bool:
    """Say whether this process was forked from one that had used gRPC."""
    return _Grpc.is_lost


def _give_up() -> None:
    _Grpc.is_lost = _Grpc.is_used
    descriptors = [*_FILES, *(one.fileno() for one in _SOCKETS)]
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for descriptor in descriptors:
        if descriptor >= 0:
            # Its number stays in use: what closes it later closes no other file.
            os.dup2(nothing, descriptor, inheritable=False)
    os.close(nothing)
    _FILES.clear()


os.register_at_fork(after_in_child=_give_up)
