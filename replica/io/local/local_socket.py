"""The Unix socket beside a store, over which processes of one user share it (DECISIONS D340).

It is bound and unlinked only by the holder of the store's lock, with mode 0600, and both
sides check that the other process is of the same user. A path may be longer than the
107 bytes of an address: the folder is then named by a descriptor.
"""

import fcntl
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from replica.io.files import FILE_MODE, typed_errors
from replica.io.process import own_socket

ADDRESS_BYTES_MAX = 107
"""Bytes of a Unix socket's address, without the zero at its end."""
BACKLOG = 128
_CREDENTIALS = struct.Struct("3i")


def is_supported() -> bool:
    """Say whether this system tells the user of a peer and has locks of open files (Linux)."""
    return hasattr(socket, "SO_PEERCRED") and hasattr(fcntl, "F_OFD_SETLK")


def socket_path(store: Path) -> Path:
    """Return the path of a store's socket."""
    return store.with_name(f"{store.name}.sock")


def listen(store: Path) -> socket.socket:
    """Bind and listen beside a store, whose lock the caller holds; replaces a stale socket.

    Raises StoreFull or another StoreError.
    """
    remove(store)
    with typed_errors(), ExitStack() as stack:
        made = _Listener(socket.AF_UNIX, socket.SOCK_STREAM)
        listener = stack.enter_context(own_socket(made))
        listener.setblocking(False)
        # Before it is bound: the name never exists with another mode.
        os.fchmod(listener.fileno(), FILE_MODE)
        with _address(socket_path(store)) as address:
            listener.bind(address)
        listener.listen(BACKLOG)
        stack.pop_all()
    return listener


def connect(store: Path) -> socket.socket:
    """Connect to the process that serves a store. Raises OSError if none does."""
    client = own_socket(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
    try:
        client.setblocking(False)
        with _address(socket_path(store)) as address:
            client.connect(address)  # at once, or it fails: there is no network
    except BaseException:
        client.close()
        raise
    return client


def remove(store: Path) -> None:
    """Remove the socket beside a store, whose lock the caller holds. Raises StoreError."""
    with typed_errors():
        socket_path(store).unlink(missing_ok=True)


def peer_user(peer: "socket.socket") -> int:
    """Return the user id of the process at the other end."""
    data = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, user, _ = _CREDENTIALS.unpack(data)
    return int(user)


def may_share(user: int, own: int) -> bool:
    """Say whether a process of `user` may share a store of `own`: not even the superuser may."""
    return user == own


class _Listener(socket.socket):
    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection, which forked children give up too."""
        connected, address = super().accept()
        return own_socket(connected), address


@contextmanager
def _address(path: Path) -> Iterator[str]:
    """Yield an address of `path`, whose folder a descriptor stands for if it is too long."""
    if len(os.fsencode(path)) <= ADDRESS_BYTES_MAX:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
