"""Work that goes on to its end although its caller is cancelled."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import anyio

T = TypeVar("T")


async def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Await work that no cancellation of the caller interrupts; it is raised behind the end.

    A shield of anyio alone does not keep out `asyncio.timeout`, `wait_for` and `Task.cancel`.
    """
    task, cancelled = asyncio.ensure_future(work), None
    with anyio.CancelScope(shield=True):
        while not task.done():
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError as error:
                cancelled = error
    if cancelled is not None:
        raise cancelled from task.exception()
    return task.result()
