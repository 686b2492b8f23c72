"""Waiting for work that can't be interrupted, as that of a thread."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

R = TypeVar("R")


async def to_the_end(work: Awaitable[R]) -> R:
    """Wait for the end of work, also where the caller is cancelled before; return its result.

    What the work uses, a file for one, may be closed right behind this call. A second
    cancellation ends the wait. Raises what the work raises.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(look_at)
        await asyncio.wait([task])
        raise


def look_at(ended: "asyncio.Future[R]") -> None:
    """Look at the error of work whose caller has gone, since nobody else does."""
    if not ended.cancelled():
        ended.exception()
