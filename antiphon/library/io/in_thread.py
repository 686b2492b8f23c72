"""Plain functions of the program, each in a thread, where it may use the blocking form."""

import asyncio
import threading
from asyncio import AbstractEventLoop
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any
from weakref import WeakKeyDictionary

import anyio.to_thread
from anyio import CapacityLimiter
from anyio.lowlevel import RunVar

from replica.refusals import ArgumentInvalid

THREADS_MAX = 256
"""Plain functions of the program that run at a time, at each depth of nesting (DECISIONS D451)."""
NESTED_MAX = 16
"""Plain functions that run inside each other: tools of runs that other tools began."""
_DEPTH: ContextVar[int] = ContextVar("depth", default=0)
_LIMITERS: RunVar[list[CapacityLimiter]] = RunVar("limiters")
"""Those of the event loop, one for each depth. A function waits only for deeper ones, so that
no two wait for each other."""
_THREADS: WeakKeyDictionary[threading.Thread, AbstractEventLoop] = WeakKeyDictionary()
"""The threads of anyio's pools that functions ran in, with the loops that they serve."""


async def in_thread(function: Callable[[], Any]) -> Any:
    """Call a plain function in a thread; it waits for one while too many run at its depth.

    Raises ArgumentInvalid where it would be nested too deep.
    """
    depth, loop = _DEPTH.get(), asyncio.get_running_loop()
    if depth == NESTED_MAX:
        raise ArgumentInvalid(
            f"plain functions run inside each other {NESTED_MAX} deep, as tools of runs that tools"
            " begin; give the innermost run async functions, or no tools"
        )
    limiters = _LIMITERS.get(None)
    if limiters is None:
        limiters = [CapacityLimiter(THREADS_MAX) for _ in range(NESTED_MAX)]
        _LIMITERS.set(limiters)

    def work() -> Any:
        _THREADS[threading.current_thread()] = loop
        return function()

    token = _DEPTH.set(depth + 1)  # the thread gets a copy of the context
    try:
        return await anyio.to_thread.run_sync(work, limiter=limiters[depth])
    finally:
        _DEPTH.reset(token)


def _end_all() -> None:
    """Let threads end whose loop does not run any more: anyio ends them with its main task."""
    for thread, loop in tuple(_THREADS.items()):
        if not loop.is_running():
            thread.stop()  # type: ignore[attr-defined]  # behind the function it runs


# Python waits for these threads as it ends (DECISIONS D460).
threading._register_atexit(_end_all)  # type: ignore[attr-defined]
