"""Waiting for work that can't be interrupted, as that of a thread."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

R = TypeVar("R")


async def to_the_end(work: Awaitable[R]) -> R:
    """Wait for the end of work, also where the caller is cancelled before; return its result.

    What the work uses, a file for one, may be closed right behind this call. Raises what the
    work raises, and behind its end the cancellation.
    """
    task, cancelled = asyncio.ensure_future(work), None
    try:
        while not task.done():
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            look_at(task)
            raise cancelled
        return task.result()
    finally:
        # An error refers to this frame: with it, all that the caller uses would stay.
        del task, cancelled


def look_at(ended: "asyncio.Future[R]") -> None:
    """Look at the error of work whose caller has gone, since nobody else does."""
    if not ended.cancelled():
        ended.exception()
