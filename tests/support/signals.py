"""Signals that a process ignores or blocks, as it may have been started to: children inherit it."""

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

TurnedOff = Callable[[signal.Signals], AbstractContextManager[None]]


@contextmanager
def ignored(number: signal.Signals) -> Iterator[None]:
    """Ignore a signal for the block."""
    before = signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(number, before)


@contextmanager
def blocked(number: signal.Signals) -> Iterator[None]:
    """Block a signal for the block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
