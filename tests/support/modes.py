"""A thread of root that the modes of files bind, as they bind any other user."""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

_VERSION = 0x20080522
_DAC_OVERRIDE, _DAC_READ_SEARCH = 1, 2
"""Numbers of linux/capability.h."""
_GET_SECUREBITS, _SET_SECUREBITS, _NO_SETUID_FIXUP = 27, 28, 4
"""Of linux/prctl.h and linux/securebits.h: access() of root looks at what it does, then."""


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Data(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


@contextmanager
def bound_by_modes() -> Iterator[None]:
    """Let the modes of files bind this thread, and those that it starts, in the block.

    Skips the test where root can't give up that right for a while.
    """
    if os.geteuid() != 0:
        yield
        return
    if not sys.platform.startswith("linux"):
        _skip("only Linux lets a thread of root obey the modes of files")
    libc = ctypes.CDLL(None, use_errno=True)
    header, held, bound = _Header(_VERSION, 0), (_Data * 2)(), (_Data * 2)()
    for data in (held, bound):
        assert libc.capget(ctypes.byref(header), data) == 0
    bound[0].effective &= ~(1 << _DAC_OVERRIDE | 1 << _DAC_READ_SEARCH)
    bits = libc.prctl(_GET_SECUREBITS, 0, 0, 0, 0)
    if libc.prctl(_SET_SECUREBITS, bits | _NO_SETUID_FIXUP, 0, 0, 0) != 0:
        _skip("this root may not change its rights: it lacks CAP_SETPCAP")
    assert libc.capset(ctypes.byref(header), bound) == 0
    try:
        yield
    finally:
        assert libc.capset(ctypes.byref(header), held) == 0
        assert libc.prctl(_SET_SECUREBITS, bits, 0, 0, 0) == 0


def _skip(reason: str) -> NoReturn:
    import pytest  # not needed by a process that tests start

    pytest.skip(reason)


@contextmanager
def mode(path: Path, number: int) -> Iterator[None]:
    """Give a file or a folder another mode in the block."""
    before = path.stat().st_mode
    path.chmod(number)
    try:
        yield
    finally:
        path.chmod(before)
